#include <algorithm>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"
#include "bench/compare/utilization.h"

namespace shardbench::bench {

namespace {

bool any_limit(const Comparison& comparison) {
  const std::vector<const Row*> rows = rows_of(comparison);
  return std::any_of(rows.begin(), rows.end(),
                     [](const Row* row) { return row->limit.has_value(); });
}

}  // namespace

Section time_section(const Comparison& comparison) {
  const std::string slowest = "slowest rank (ms)";
  const std::string communication = "communication, mean over ranks (ms)";
  const std::string limit = "parts alone (ms)";
  const double peak_tflops = comparison.request.peak_tflops;
  RowTable table(comparison, RowTable::Keys::kAll,
                 {{slowest, "step", false, "step_ms"},
                  {slowest, "min", false, "step_min_ms"},
                  {slowest, "max", false, "step_max_ms"},
                  {slowest, "fwd", false, "forward_ms"},
                  {slowest, "bwd", false, "backward_ms"},
                  {slowest, "optim", false, "optimizer_ms"},
                  {communication, "comm", false, "comm_ms"},
                  {communication, "overlap", false, "overlap_ms"},
                  {communication, "exposed", false, "exposed_ms"},
                  {communication, "overlap%", false, "overlap_percent"},
                  {limit, "limit", false, "limit_ms", !any_limit(comparison)},
                  {limit, "x", false, "limit_ratio", !any_limit(comparison)},
                  mfu_column(peak_tflops)});
  for (const Row* row : rows_of(comparison)) {
    if (!row->right()) {
      table.add_verdict(*row);
      continue;
    }
    const bool several = row->config.world_size > 1;
    const Spread comm = row->comm();
    const Spread overlap = row->overlap();
    const Spread exposed = row->exposed();
    table.add(*row,
              {ms_cell(row->step.median), ms_cell(row->step.min), ms_cell(row->step.max),
               ms_cell(row->forward_ns), ms_cell(row->backward_ns), ms_cell(row->optimizer_ns),
               if_applies(several, ms_cell(comm.mean)), if_applies(several, ms_cell(overlap.mean)),
               if_applies(several, ms_cell(exposed.mean)),
               if_applies(several && comm.mean > 0, percent_cell(overlap.mean / comm.mean)),
               if_applies(row->limit.has_value(), ms_cell(row->limit ? row->limit_ns() : 0)),
               if_applies(row->limit.has_value(),
                          ratio_cell(row->limit ? row->step.median / row->limit_ns() : 0)),
               mfu_cell(*row, peak_tflops)});
    if (!several || (!times_differ(comm) && !times_differ(exposed))) continue;
    add_min_mean_max(table, *row, [&](double Spread::*part) -> std::vector<Cell> {
      return {"",
              "",
              "",
              "",
              "",
              "",
              ms_cell(comm.*part),
              ms_cell(overlap.*part),
              ms_cell(exposed.*part),
              "",
              "",
              "",
              ""};
    });
  }
  return {"", {}, table.take(), mfu_notes(comparison)};
}

}  // namespace shardbench::bench
