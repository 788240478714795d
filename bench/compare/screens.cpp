#include "bench/compare/screens.h"

#include <fmt/format.h>

#include "bench/compare/format.h"
#include "bench/compare/table.h"

namespace shardbench::bench {
namespace {

std::string interval(const Summary& step) {
  return step.ci95_half < 0 ? kNotMeasured : percent(step.ci95_half / step.median);
}

std::string formula_cell(const Row& row) {
  if (row.traffic.empty() || row.config.world_size == 1) return kDash;
  return row.traffic_error.empty() ? "yes" : "NO";
}

/// Tokens per second in at most five characters up to ten million.
std::string rate(double tokens_per_s) {
  return tokens_per_s < 99999.5 ? fmt::format("{:.0f}", tokens_per_s)
                                : fmt::format("{:.0f}k", tokens_per_s / 1000);
}

/// "x ddp" for the usual baseline; short names keep the column narrow.
std::string ratio_name(const Comparison& comparison) {
  return "x " + baseline_of(comparison.request.strategies);
}

}  // namespace

std::optional<TableKind> table_kind(const std::string& name) {
  if (name == "brief") return TableKind::kBrief;
  if (name == "full") return TableKind::kFull;
  if (name == "memory") return TableKind::kMemory;
  if (name == "traffic") return TableKind::kTraffic;
  if (name == "time") return TableKind::kTime;
  return std::nullopt;
}

std::string verdict_text(const Row& row) {
  if (row.state == Row::State::kFailed) return "FAILED " + row.reason;
  if (row.state == Row::State::kWrong) {
    const std::string what = row.parity.first_tensor.empty() ? "" : row.parity.first_tensor + ": ";
    return "WRONG " + what + row.reason;
  }
  return {};
}

const Row* baseline_row(const Comparison& comparison, const Block& block) {
  const std::string name = baseline_of(comparison.request.strategies);
  for (const Row& row : block.rows) {
    if (row.strategy() == name && row.right()) return &row;
  }
  return nullptr;
}

bool bytes_differ(const Spread& spread) { return mib(spread.min) != mib(spread.max); }

bool times_differ(const Spread& spread) { return ms(spread.min) != ms(spread.max); }

std::string ratio_to(double value, double baseline) {
  return baseline > 0 ? ratio(value / baseline) : kDash;
}

std::string brief_table(const Comparison& comparison, const Block& block) {
  const std::string times_base = ratio_name(comparison);
  const std::string memory = "memory, MiB";
  const std::string sent = "sent, as formula?";
  TextTable table({{"", "strategy", true},
                   {"step", "ms"},
                   {"step", "+-%"},
                   {"step", "tok/s"},
                   {memory, "states"},
                   {memory, "peak"},
                   {memory, times_base},
                   {sent, "MiB"},
                   {sent, times_base},
                   {sent, "ok"},
                   {sent, "calls"},
                   {"exposed", "ms"},
                   {"balance", "x mean"},
                   {"same", "result"}});
  const Row* base = baseline_row(comparison, block);
  for (const Row& row : block.rows) {
    if (!row.right()) {
      std::string text = verdict_text(row);
      const std::size_t room = kScreenWidth - 14;
      if (text.size() > room) text = text.substr(0, room - 3) + "...";
      table.add_span({row.strategy()}, text);
      continue;
    }
    const bool alone = row.config.world_size == 1;
    const double peak = row.peak().max;
    const double sent_bytes = row.sent().mean;
    table.add_row({row.strategy(), ms(row.step.median), interval(row.step), rate(row.tokens_per_s),
                   mib(row.persistent().max), mib(peak),
                   ratio_to(peak, base == nullptr ? 0 : base->peak().max),
                   alone ? kDash : mib(sent_bytes),
                   ratio_to(sent_bytes, base == nullptr ? 0 : base->sent().mean), formula_cell(row),
                   alone ? kDash : fmt::format("{}", row.peak_rank().calls),
                   alone ? kDash : ms(row.exposed().mean),
                   alone ? kDash : ratio(row.persistent().imbalance()), "yes"});
  }
  return table.render();
}

std::string full_table(const Comparison& comparison) {
  const std::string times_base = ratio_name(comparison);
  TextTable table({{"", "strategy", true},
                   {"", "W"},
                   {"step", "(ms)"},
                   {"+-", "(%)"},
                   {"throughput", "tok/s"},
                   {"throughput", times_base},
                   {"peak", "(MiB)"},
                   {"peak", times_base},
                   {"states", "(MiB)"},
                   {"sent", "(MiB)"},
                   {"sent", times_base},
                   {"", "calls"},
                   {"exposed", "(ms)"},
                   {"", "parity"}});
  for (const Block& block : comparison.blocks) {
    const Row* base = baseline_row(comparison, block);
    for (const Row& row : block.rows) {
      const std::string world = fmt::format("{}", row.config.world_size);
      if (!row.right()) {
        table.add_span({row.strategy(), world}, verdict_text(row));
        continue;
      }
      const bool alone = row.config.world_size == 1;
      const Spread peak = row.peak();
      const Spread states = row.persistent();
      const Spread sent = row.sent();
      const Spread exposed = row.exposed();
      table.add_row({row.strategy(), world, ms(row.step.median), interval(row.step),
                     fmt::format("{:.0f}", row.tokens_per_s),
                     ratio_to(row.tokens_per_s, base == nullptr ? 0 : base->tokens_per_s),
                     mib(peak.max), ratio_to(peak.max, base == nullptr ? 0 : base->peak().max),
                     mib(states.max), alone ? kDash : mib(sent.mean),
                     ratio_to(sent.mean, base == nullptr ? 0 : base->sent().mean),
                     alone ? kDash : fmt::format("{}", row.peak_rank().calls),
                     alone ? kDash : ms(exposed.mean),
                     !row.traffic_error.empty() ? "BYTES" : (row.parity.bit_equal ? "bit" : "ok")});
      if (!bytes_differ(peak) && !bytes_differ(states) && !bytes_differ(sent)) continue;
      const auto add = [&](const char* name, double Spread::*part) {
        table.add_row({name, "", "", "", "", "", mib(peak.*part), "", mib(states.*part),
                       mib(sent.*part), "", "", ms(exposed.*part), ""});
      };
      add("  min", &Spread::min);
      add("  mean", &Spread::mean);
      add("  max", &Spread::max);
    }
  }
  return table.render();
}

std::string time_table(const Comparison& comparison) {
  const std::string slowest = "slowest rank (ms)";
  const std::string communication = "communication, mean over ranks (ms)";
  TextTable table({{"", "strategy", true},
                   {"", "W"},
                   {slowest, "step"},
                   {slowest, "min"},
                   {slowest, "max"},
                   {slowest, "fwd"},
                   {slowest, "bwd"},
                   {slowest, "optim"},
                   {communication, "comm"},
                   {communication, "overlap"},
                   {communication, "exposed"},
                   {communication, "overlap%"}});
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      const std::string world = fmt::format("{}", row.config.world_size);
      if (!row.right()) {
        table.add_span({row.strategy(), world}, verdict_text(row));
        continue;
      }
      const bool alone = row.config.world_size == 1;
      const Spread comm = row.comm();
      const Spread overlap = row.overlap();
      const Spread exposed = row.exposed();
      const std::string hidden = comm.mean > 0 ? percent(overlap.mean / comm.mean) : kDash;
      table.add_row({row.strategy(), world, ms(row.step.median), ms(row.step.min), ms(row.step.max),
                     ms(row.forward_ns), ms(row.backward_ns), ms(row.optimizer_ns),
                     alone ? kDash : ms(comm.mean), alone ? kDash : ms(overlap.mean),
                     alone ? kDash : ms(exposed.mean), alone ? kDash : hidden});
      if (alone || (!times_differ(comm) && !times_differ(exposed))) continue;
      const auto add = [&](const char* name, double Spread::*part) {
        table.add_row({name, "", "", "", "", "", "", "", ms(comm.*part), ms(overlap.*part),
                       ms(exposed.*part), ""});
      };
      add("  min", &Spread::min);
      add("  max", &Spread::max);
    }
  }
  return table.render();
}

std::string render_table(TableKind kind, const Comparison& comparison) {
  std::vector<int> worlds;
  for (const Block& block : comparison.blocks) worlds.push_back(block.world_size);
  if (worlds.empty()) worlds = comparison.request.worlds;
  std::string out = context_line(comparison.request, comparison.model, worlds) + "\n\n";
  switch (kind) {
    case TableKind::kBrief:
      for (std::size_t i = 0; i < comparison.blocks.size(); ++i) {
        if (i > 0) out += '\n';
        if (worlds.size() > 1) out += fmt::format("W = {}\n", worlds[i]);
        out += brief_table(comparison, comparison.blocks[i]);
      }
      return out;
    case TableKind::kFull:
      return out + full_table(comparison);
    case TableKind::kMemory:
      return out + memory_table(comparison);
    case TableKind::kTraffic:
      return out + traffic_table(comparison);
    case TableKind::kTime:
      return out + time_table(comparison);
  }
  return out;
}

}  // namespace shardbench::bench
