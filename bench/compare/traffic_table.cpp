#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "bench/compare/format.h"
#include "bench/compare/screens.h"
#include "bench/compare/table.h"

namespace shardbench::bench {
namespace {

using Key = std::pair<Phase, comm::CollectiveKind>;

/// The entries of all ranks for one (phase, kind), or their sums over several.
struct Line {
  std::vector<double> calls;
  std::vector<double> payload;
  std::vector<double> algo;
  std::vector<double> wire;
  std::vector<double> formula;
  bool wire_counted = true;

  explicit Line(std::size_t ranks = 0)
      : calls(ranks), payload(ranks), algo(ranks), wire(ranks), formula(ranks) {}

  void add(const TrafficRow& entry) {
    const auto r = static_cast<std::size_t>(entry.rank);
    calls[r] += static_cast<double>(entry.calls);
    payload[r] += static_cast<double>(entry.payload_bytes);
    algo[r] += static_cast<double>(entry.algo_bytes);
    wire[r] += static_cast<double>(entry.wire.sent);
    formula[r] += static_cast<double>(entry.formula_bytes.value_or(0));
    wire_counted = wire_counted && entry.wire_counted();
  }
};

/// Counted minus calculated of the rank that is furthest off, bytes.
double worst_difference(const Line& line) {
  double worst = 0;
  for (std::size_t r = 0; r < line.algo.size(); ++r) {
    const double off = line.algo[r] - line.formula[r];
    if (std::abs(off) > std::abs(worst)) worst = off;
  }
  return worst;
}

void add_line(TextTable& table, const std::vector<std::string>& names, const Line& line,
              double time_ns) {
  const Spread algo = spread_of(line.algo);
  const Spread wire = spread_of(line.wire);
  const Spread formula = spread_of(line.formula);
  const Spread calls = spread_of(line.calls);
  const double payload = spread_of(line.payload).mean;
  // Bus bandwidth as in nccl-tests: factor x S / t, and the factor x S is the mean of algo bytes.
  const std::string bandwidth = time_ns > 0 ? figures(algo.mean / time_ns) : kDash;
  std::vector<std::string> cells = names;
  cells.insert(cells.end(),
               {fmt::format("{:.0f}", calls.max),
                calls.mean > 0 && payload > 0 ? mib(payload / calls.mean) : kDash, mib(algo.mean),
                line.wire_counted ? mib(wire.mean) : kNotMeasured, mib(formula.mean),
                fmt::format("{:.0f}", worst_difference(line)), bandwidth});
  table.add_row(std::move(cells));
  if (!bytes_differ(algo) && !bytes_differ(wire)) return;
  const auto add = [&](const char* name, double Spread::*part) {
    table.add_row({"", "", "", name, "", "", mib(algo.*part),
                   line.wire_counted ? mib(wire.*part) : kNotMeasured, mib(formula.*part), "", ""});
  };
  add("  min", &Spread::min);
  add("  max", &Spread::max);
}

void add_row(TextTable& table, const Row& row) {
  std::map<Key, Line> lines;
  Line total(row.ranks.size());
  for (const TrafficRow& entry : row.traffic) {
    if (entry.phase == Phase::kMetrics || entry.kind == comm::CollectiveKind::kBarrier) continue;
    lines.try_emplace({entry.phase, entry.kind}, row.ranks.size()).first->second.add(entry);
    total.add(entry);
  }
  const std::string world = fmt::format("{}", row.config.world_size);
  if (lines.empty() || row.config.world_size == 1) {
    table.add_span({row.strategy(), world}, "nothing sent");
    return;
  }
  bool first = true;
  for (const auto& [key, line] : lines) {
    double time_ns = 0;
    for (const KindTime& kind : row.kind_times) {
      if (kind.phase == key.first && kind.kind == key.second) time_ns = kind.ns;
    }
    add_line(table,
             {first ? row.strategy() : "", first ? world : "", std::string(name_of(key.first)),
              std::string(comm::name_of(key.second))},
             line, time_ns);
    first = false;
  }
  add_line(table, {"", "", "total", ""}, total, 0);
}

}  // namespace

std::string traffic_table(const Comparison& comparison) {
  const std::string sent = "sent by a rank in one step, mean (MiB)";
  TextTable table({{"", "strategy", true},
                   {"", "W", true},
                   {"", "phase", true},
                   {"", "kind", true},
                   {"", "calls"},
                   {"S/call", "(MiB)"},
                   {sent, "algo"},
                   {sent, "wire"},
                   {sent, "formula"},
                   {"diff", "(bytes)"},
                   {"busbw", "(GB/s)"}});
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      if (row.right()) {
        add_row(table, row);
      } else {
        table.add_span({row.strategy(), fmt::format("{}", row.config.world_size)},
                       verdict_text(row));
      }
    }
  }
  return table.render();
}

}  // namespace shardbench::bench
