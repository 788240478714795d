#include <cmath>
#include <map>
#include <utility>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"

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

/// The cells of one line. `names`: phase and kind.
std::vector<Cell> line_cells(const std::vector<Cell>& names, const Line& line, double time_ns) {
  const Spread algo = spread_of(line.algo);
  const Spread calls = spread_of(line.calls);
  const double payload = spread_of(line.payload).mean;
  std::vector<Cell> cells = names;
  // Bus bandwidth as in nccl-tests: factor x S / t, and the factor x S is the mean of algo bytes.
  const Cell bandwidth =
      time_ns > 0 ? Cell::of(figures(algo.mean / time_ns), algo.mean / time_ns) : Cell(kDash);
  cells.insert(
      cells.end(),
      {whole_cell(calls.max),
       if_applies(calls.mean > 0 && payload > 0, mib_cell(payload / calls.mean)),
       mib_cell(algo.mean),
       line.wire_counted ? mib_cell(spread_of(line.wire).mean) : Cell(kNotMeasured),
       mib_cell(spread_of(line.formula).mean), whole_cell(worst_difference(line)), bandwidth});
  return cells;
}

/// Adds a line; `first` of its row, with the columns that say which row it is.
void add_line(RowTable& table, const Row& row, bool first, const std::vector<Cell>& names,
              const Line& line, double time_ns) {
  std::vector<Cell> cells = line_cells(names, line, time_ns);
  if (first) {
    table.add(row, std::move(cells));
  } else {
    table.add_more(row, "", "", std::move(cells));
  }
  const Spread algo = spread_of(line.algo);
  const Spread wire = spread_of(line.wire);
  const Spread formula = spread_of(line.formula);
  if (!bytes_differ(algo) && !bytes_differ(wire)) return;
  const auto add = [&](const std::string& name, double Spread::*part) {
    table.add_more(
        row, "", name,
        {Cell::named("", names[0].plain), Cell::named("  " + name, names[1].plain), "", "",
         mib_cell(algo.*part), line.wire_counted ? mib_cell(wire.*part) : Cell(kNotMeasured),
         mib_cell(formula.*part), "", ""});
  };
  add("min", &Spread::min);
  add("max", &Spread::max);
}

void add_row(RowTable& table, const Row& row) {
  std::map<Key, Line> lines;
  Line total(row.ranks.size());
  for (const TrafficRow& entry : row.traffic) {
    if (entry.phase == Phase::kMetrics || entry.kind == comm::CollectiveKind::kBarrier) continue;
    lines.try_emplace({entry.phase, entry.kind}, row.ranks.size()).first->second.add(entry);
    total.add(entry);
  }
  if (lines.empty() || row.config.world_size == 1) {
    table.add_text(row, "nothing sent");
    return;
  }
  bool first = true;
  for (const auto& [key, line] : lines) {
    add_line(table, row, first,
             {std::string(name_of(key.first)), std::string(comm::name_of(key.second))}, line,
             row.kind_ns(key.first, key.second));
    first = false;
  }
  add_line(table, row, false, {"total", ""}, total, 0);
}

}  // namespace

Section traffic_section(const Comparison& comparison) {
  const std::string sent = "sent by a rank in one step, mean (MiB)";
  RowTable table(comparison, RowTable::Keys::kAllLeft,
                 {{"", "phase", true, "phase"},
                  {"", "kind", true, "kind"},
                  {"", "calls", false, "calls"},
                  {"S/call", "(MiB)", false, "payload_per_call_mib"},
                  {sent, "algo", false, "algo_mib"},
                  {sent, "wire", false, "wire_mib"},
                  {sent, "formula", false, "formula_mib"},
                  {"diff", "(bytes)", false, "diff_bytes"},
                  {"busbw", "(GB/s)", false, "busbw_gb_per_s"}});
  for (const Row* row : rows_of(comparison)) {
    if (row->right()) {
      add_row(table, *row);
    } else {
      table.add_verdict(*row);
    }
  }
  return {"", {}, table.take(), {}};
}

}  // namespace shardbench::bench
