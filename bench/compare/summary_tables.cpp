// The default screen's table and the full one: a line per row with the main figures.

#include <fmt/format.h>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"
#include "bench/compare/utilization.h"

namespace shardbench::bench {
namespace {

/// On a busy machine an interval may be many times the median: that much is not worth a column.
Cell interval_cell(const Summary& step) {
  if (step.ci95_half < 0) return kNotMeasured;
  const double fraction = step.ci95_half / step.median;
  return fraction < 0.995 ? percent_cell(fraction) : Cell::of(">99", fraction * 100);
}

Cell formula_cell(const Row& row) {
  if (row.traffic.empty() || row.config.world_size == 1) return kDash;
  return row.traffic_error.empty() ? "yes" : "NO";
}

/// Tokens per second in at most five characters up to ten million.
Cell rate_cell(double tokens_per_s) {
  return Cell::of(tokens_per_s < 99999.5 ? fmt::format("{:.0f}", tokens_per_s)
                                         : fmt::format("{:.0f}k", tokens_per_s / 1000),
                  tokens_per_s);
}

/// Rows of `run` have no reference.
Cell parity_cell(const Row& row) {
  if (!row.traffic_error.empty()) return "BYTES";
  if (!row.judged) return kNotMeasured;
  return row.parity.bit_equal ? "bit" : "ok";
}

/// "x ddp" for the usual baseline; short names keep the column narrow.
std::string ratio_name(const Comparison& comparison) {
  return "x " + baseline_of(comparison.request.strategies);
}

double peak_of(const Row* row) { return row == nullptr ? 0 : row->peak().max; }
double sent_of(const Row* row) { return row == nullptr ? 0 : row->sent().mean; }
double rate_of(const Row* row) { return row == nullptr ? 0 : row->tokens_per_s; }

}  // namespace

Section brief_section(const Comparison& comparison, const Block& block) {
  const std::string times_base = ratio_name(comparison);
  const std::string memory = "memory, MiB";
  const std::string sent = "sent, as formula?";
  RowTable table(comparison, RowTable::Keys::kStrategyOnly,
                 {{"step", "ms", false, "step_ms"},
                  {"step", "+-%", false, "step_ci95_percent"},
                  {"step", "tok/s", false, "tokens_per_s"},
                  {memory, "states", false, "states_mib"},
                  {memory, "peak", false, "peak_mib"},
                  {memory, times_base, false, "peak_ratio"},
                  {sent, "MiB", false, "sent_mib"},
                  {sent, times_base, false, "sent_ratio"},
                  {sent, "ok", false, "bytes_as_formula"},
                  {sent, "calls", false, "calls"},
                  {"exposed", "ms", false, "exposed_ms"},
                  {"balance", "x mean", false, "states_max_over_mean"},
                  {"same", "result", false, "same_result"}});
  const Row* base = baseline_row(comparison, block);
  for (const Row& row : block.rows) {
    if (!row.right()) {
      table.add_verdict(row, kScreenWidth - 14);
      continue;
    }
    const bool several = row.config.world_size > 1;
    const double peak = row.peak().max;
    const double sent_bytes = row.sent().mean;
    table.add(row,
              {ms_cell(row.step.median), interval_cell(row.step), rate_cell(row.tokens_per_s),
               mib_cell(row.persistent().max), mib_cell(peak), ratio_to_cell(peak, peak_of(base)),
               if_applies(several, mib_cell(sent_bytes)), ratio_to_cell(sent_bytes, sent_of(base)),
               formula_cell(row), if_applies(several, Cell::of(row.peak_rank().calls)),
               if_applies(several, ms_cell(row.exposed().mean)),
               if_applies(several, ratio_cell(row.persistent().imbalance())),
               row.judged ? "yes" : kNotMeasured});
  }
  const bool alone = comparison.blocks.size() == 1;
  return {alone || block.rows.empty() ? std::string()
                                      : block_title(comparison.request, block.rows.front().config),
          {},
          table.take(),
          {}};
}

Section full_section(const Comparison& comparison) {
  const std::string times_base = ratio_name(comparison);
  const double peak_tflops = comparison.request.peak_tflops;
  RowTable table(comparison, RowTable::Keys::kAll,
                 {{"step", "(ms)", false, "step_ms"},
                  {"+-", "(%)", false, "step_ci95_percent"},
                  {"throughput", "tok/s", false, "tokens_per_s"},
                  {"throughput", times_base, false, "tokens_per_s_ratio"},
                  mfu_column(peak_tflops),
                  {"peak", "(MiB)", false, "peak_mib"},
                  {"peak", times_base, false, "peak_ratio"},
                  {"states", "(MiB)", false, "states_mib"},
                  {"sent", "(MiB)", false, "sent_mib"},
                  {"sent", times_base, false, "sent_ratio"},
                  {"", "calls", false, "calls"},
                  {"exposed", "(ms)", false, "exposed_ms"},
                  {"", "parity", false, "parity"}});
  for (const Block& block : comparison.blocks) {
    const Row* base = baseline_row(comparison, block);
    for (const Row& row : block.rows) {
      if (!row.right()) {
        table.add_verdict(row);
        continue;
      }
      const bool several = row.config.world_size > 1;
      const Spread peak = row.peak();
      const Spread states = row.persistent();
      const Spread sent = row.sent();
      const Spread exposed = row.exposed();
      table.add(row,
                {ms_cell(row.step.median), interval_cell(row.step), whole_cell(row.tokens_per_s),
                 ratio_to_cell(row.tokens_per_s, rate_of(base)), mfu_cell(row, peak_tflops),
                 mib_cell(peak.max), ratio_to_cell(peak.max, peak_of(base)), mib_cell(states.max),
                 if_applies(several, mib_cell(sent.mean)), ratio_to_cell(sent.mean, sent_of(base)),
                 if_applies(several, Cell::of(row.peak_rank().calls)),
                 if_applies(several, ms_cell(exposed.mean)), parity_cell(row)});
      if (!bytes_differ(peak) && !bytes_differ(states) && !bytes_differ(sent)) continue;
      add_min_mean_max(table, row, [&](double Spread::*part) -> std::vector<Cell> {
        return {"",
                "",
                "",
                "",
                "",
                mib_cell(peak.*part),
                "",
                mib_cell(states.*part),
                mib_cell(sent.*part),
                "",
                "",
                ms_cell(exposed.*part),
                ""};
      });
    }
  }
  return {"", {}, table.take(), mfu_notes(comparison)};
}

}  // namespace shardbench::bench
