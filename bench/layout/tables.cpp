#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/layout/report.h"
#include "common/core/format.h"
#include "common/sharding/layout.h"

namespace shardbench::bench {
namespace {

using sharding::ParameterShape;
using sharding::SliceRun;

std::string shape_text(const ParameterShape& parameter) {
  return parameter.dims.empty() ? "scalar" : fmt::format("{}", fmt::join(parameter.dims, "x"));
}

/// Bytes shown in MiB and kept as bytes.
Cell bytes_cell(double bytes) { return Cell::of(mib(bytes), bytes); }
Cell bytes_cell(std::int64_t bytes) { return bytes_cell(static_cast<double>(bytes)); }

Cell count_cell(std::int64_t count) {
  return Cell::of(format_count(count), static_cast<double>(count));
}

/// Calls per step, or a dash where messages do not go by unit.
Cell calls_cell(int calls) { return if_applies(calls >= 0, Cell::of(std::int64_t{calls})); }

/// Columns that only machines need: they see the layouts of several tables in one.
std::vector<Column> with_layout(std::vector<Column> columns) {
  columns.insert(columns.begin(),
                 {{"", "strategy", true, "strategy", true}, {"", "W", false, "world_size", true}});
  return columns;
}

std::vector<Cell> layout_cells(const Layout& layout) {
  return {layout.placement.strategy, Cell::of(std::int64_t{layout.world_size})};
}

std::vector<Cell> joined(std::vector<Cell> cells, const std::vector<Cell>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
  return cells;
}

/// "h.3" and "h.5" with what is between them left out: "h.3 - h.5".
std::string span_name(const std::string& first, const std::string& last) {
  return first == last ? first : first + " - " + last;
}

/// Which ranks keep what of one parameter; a whole one is kept by all.
std::vector<SliceRun> runs_of(const ParameterShape& parameter, std::size_t index,
                              const Layout& layout) {
  switch (layout.placement.sharded()) {
    case Placing::kWhole:
      return {{0, layout.world_size - 1, parameter.rows()}};
    case Placing::kOwner:
      return {{layout.owner[index], layout.owner[index], parameter.rows()}};
    case Placing::kRows:
      return sharding::slice_runs(parameter.rows(), layout.world_size);
  }
  return {};
}

/// Unit of each parameter.
std::vector<std::string> unit_names(const LayoutReport& report) {
  std::vector<std::string> names(report.model.parameters.size());
  for (const sharding::UnitShape& unit : report.units) {
    for (const int p : unit.parameters) names[static_cast<std::size_t>(p)] = unit.name;
  }
  return names;
}

std::string ranks_text(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

/// The numbers in a path stand for all of them: "h.3.attn.qkv.weight" -> "h.*.attn.qkv.weight".
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (at == 0 ? "" : ".") + (number ? std::string("*") : part);
    at = end + 1;
  }
  return pattern;
}

/// Parameters that differ only in the numbers of their path.
struct Alike {
  std::string pattern;
  std::vector<std::size_t> parameters;
};

std::vector<Alike> alike_parameters(const LayoutReport& report) {
  std::vector<Alike> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (std::size_t i = 0; i < report.model.parameters.size(); ++i) {
    const ParameterShape& parameter = report.model.parameters[i];
    const std::string pattern = pattern_of(parameter.name);
    const auto [at, added] = known.try_emplace({pattern, shape_text(parameter)}, groups.size());
    if (added) groups.push_back({pattern, {}});
    groups[at->second].parameters.push_back(i);
  }
  for (Alike& group : groups) {
    if (group.parameters.size() == 1) {
      group.pattern = report.model.parameters[group.parameters[0]].name;
    }
  }
  return groups;
}

/// "64 x4", "2 x2, 1, 0".
std::string rows_text(const std::vector<SliceRun>& runs) {
  std::string text;
  for (const SliceRun& run : runs) {
    const int ranks = run.last_rank - run.first_rank + 1;
    if (!text.empty()) text += ", ";
    text += ranks == 1 ? std::to_string(run.count) : fmt::format("{} x{}", run.count, ranks);
  }
  return text;
}

/// Items with spaces between them, as many as fit; "..." for the rest.
std::string fitting(const std::vector<std::string>& items, std::size_t width) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t dots = i + 1 < items.size() ? 4 : 0;
    if (text.size() + 1 + items[i].size() + dots > width)
      return text.empty() ? "..." : text + " ...";
    text += (i == 0 ? "" : " ") + items[i];
  }
  return text;
}

/// What stands behind a group's shape: first rows by rank, or the owners of its tensors.
std::vector<std::string> places_of(const LayoutReport& report, const Layout& layout,
                                   const Alike& group) {
  std::vector<std::string> places;
  if (layout.placement.sharded() == Placing::kOwner) {
    for (const std::size_t i : group.parameters) places.push_back(std::to_string(layout.owner[i]));
    return places;
  }
  const std::int64_t rows = report.model.parameters[group.parameters[0]].rows();
  // More than a screen is wide is never shown.
  const int shown = std::min<int>(layout.world_size, static_cast<int>(kScreenWidth));
  for (int rank = 0; rank < shown; ++rank) {
    const sharding::Range range = sharding::slice_of(rows, layout.world_size, rank);
    places.push_back(row_range_text(range));
  }
  return places;
}

}  // namespace

std::string row_range_text(const sharding::Range& rows) {
  if (rows.size() == 0) return kDash;
  if (rows.size() == 1) return std::to_string(rows.begin);
  return fmt::format("{}-{}", rows.begin, rows.end - 1);
}

Table layout_summary_table(const std::vector<const Layout*>& layouts) {
  const std::string group = "states per rank, MiB";
  Table table({{"", "strategy", true, "strategy"},
               {"", "W", false, "world_size"},
               {group, "min", false, "states_min_bytes"},
               {group, "mean", false, "states_mean_bytes"},
               {group, "max", false, "states_max_bytes"},
               {"balance,", "max/mean", false, "balance"},
               {"fullest", "rank", false, "fullest_rank"},
               {"ranks with", "nothing", false, "ranks_without"},
               {"padding,", "KiB", false, "padding_bytes"},
               {"sent/step, MiB", "mean", false, "sent_mean_bytes"},
               {"sent/step, MiB", "max", false, "sent_max_bytes"}});
  for (const Layout* layout : layouts) {
    const bool sends = !layout->sent_bytes.empty();
    const std::int64_t most = sends ? std::ranges::max(layout->sent_bytes) : 0;
    const auto padding = static_cast<double>(layout->padding_bytes);
    table.add_row({layout->placement.strategy, Cell::of(std::int64_t{layout->world_size}),
                   bytes_cell(layout->min_bytes), bytes_cell(layout->mean_bytes),
                   bytes_cell(layout->max_bytes),
                   Cell::of(fmt::format("{:.3f}", layout->balance()), layout->balance()),
                   if_applies(layout->max_bytes > layout->min_bytes,
                              Cell::of(std::int64_t{layout->fullest_rank})),
                   if_applies(layout->placement.sharded() != Placing::kWhole,
                              Cell::of(std::int64_t{layout->ranks_without})),
                   Cell::of(figures(padding / 1024), padding),
                   if_applies(sends, bytes_cell(layout->mean_sent_bytes())),
                   if_applies(sends, bytes_cell(most))});
  }
  return table;
}

Table layout_units_table(const LayoutReport& report, const Layout& layout, bool fold) {
  Table table(with_layout({{"", "unit", true, "unit"},
                           {"", "units", false, "units"},
                           {"", "tensors", false, "tensors"},
                           {"", "elements", false, "elements"},
                           {"pad,", "KiB", false, "padding_bytes"},
                           {"MiB/rank", "max", false, "states_max_bytes"},
                           {"balance,", "max/mean", false, "balance"},
                           {"calls per step", "gathers", false, "gathers"},
                           {"calls per step", "scatters", false, "scatters"}}));
  const std::vector<UnitLayout> units = unit_layouts(report.model, layout, report.units);
  for (std::size_t first = 0; first < units.size();) {
    std::size_t end = first + 1;
    while (fold && end < units.size() && units[end].alike(units[first])) ++end;
    const UnitLayout& unit = units[first];
    const auto padding = static_cast<double>(unit.padding_bytes);
    table.add_row(joined(layout_cells(layout),
                         {span_name(unit.name, units[end - 1].name),
                          Cell::of(static_cast<std::int64_t>(end - first)),
                          Cell::of(std::int64_t{unit.tensors}), count_cell(unit.elements),
                          Cell::of(figures(padding / 1024), padding), bytes_cell(unit.max_bytes),
                          Cell::of(fmt::format("{:.3f}", unit.balance()), unit.balance()),
                          calls_cell(unit.gathers), calls_cell(unit.scatters)}));
    first = end;
  }
  return table;
}

Table layout_tensors_table(const LayoutReport& report, const Layout& layout) {
  Table table(with_layout({{"", "tensor", true, "tensor"},
                           {"", "shape", true, "shape"},
                           {"", "unit", true, "unit"},
                           {"", "ranks", false, "ranks"},
                           {"", "rows each", false, "rows_per_rank"},
                           {"elements", "each", false, "elements_per_rank"}}));
  const std::vector<std::string> units = unit_names(report);
  for (std::size_t i = 0; i < report.model.parameters.size(); ++i) {
    const ParameterShape& parameter = report.model.parameters[i];
    for (const SliceRun& run : runs_of(parameter, i, layout)) {
      table.add_row(joined(layout_cells(layout),
                           {parameter.name, shape_text(parameter), units[i],
                            ranks_text(run.first_rank, run.last_rank), Cell::of(run.count),
                            count_cell(run.count * parameter.row_elements())}));
    }
  }
  return table;
}

Table layout_ranks_table(const LayoutReport& report, const Layout& layout) {
  const std::string group = "states per rank, MiB";
  Table table(with_layout({{"", "ranks", false, "ranks"},
                           {group, "weights", false, "param_bytes"},
                           {group, "gradients", false, "grad_bytes"},
                           {group, "AdamW", false, "optimizer_bytes"},
                           {group, "all", false, "states_bytes"},
                           {"padding,", "KiB", false, "padding_bytes"},
                           {"whole", "tensors", false, "tensors"}}));
  std::vector<std::int64_t> owned(layout.ranks.size(), 0);
  for (const int owner : layout.owner) ++owned[static_cast<std::size_t>(owner)];
  const auto all = static_cast<std::int64_t>(report.model.parameters.size());
  const auto tensors_of = [&](std::size_t rank) {
    if (layout.placement.sharded() == Placing::kRows) return std::int64_t{-1};
    return layout.owner.empty() ? all : owned[rank];
  };
  for (std::size_t first = 0; first < layout.ranks.size();) {
    std::size_t end = first + 1;
    while (end < layout.ranks.size() && layout.ranks[end] == layout.ranks[first] &&
           tensors_of(end) == tensors_of(first)) {
      ++end;
    }
    const RankBytes& rank = layout.ranks[first];
    const auto padding = static_cast<double>(rank.padding);
    table.add_row(joined(layout_cells(layout),
                         {ranks_text(static_cast<int>(first), static_cast<int>(end) - 1),
                          bytes_cell(rank.param), bytes_cell(rank.grad), bytes_cell(rank.optimizer),
                          bytes_cell(rank.persistent()), Cell::of(figures(padding / 1024), padding),
                          if_applies(tensors_of(first) >= 0, Cell::of(tensors_of(first)))}));
    first = end;
  }
  return table;
}

Table layout_brief_tensors_table(const LayoutReport& report, const Layout& layout) {
  const Placing placing = layout.placement.sharded();
  const std::vector<Alike> groups = alike_parameters(report);
  std::vector<std::vector<std::string>> fixed;
  std::vector<std::size_t> widths(4, 0);
  for (const Alike& group : groups) {
    const ParameterShape& parameter = report.model.parameters[group.parameters[0]];
    std::vector<std::string> cells = {
        group.pattern, shape_text(parameter), std::to_string(group.parameters.size()),
        placing == Placing::kRows
            ? rows_text(sharding::slice_runs(parameter.rows(), layout.world_size))
            : mib(static_cast<double>(parameter.numel() * 4))};
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
    fixed.push_back(std::move(cells));
  }
  const bool rows = placing == Placing::kRows;
  const std::string heading = rows ? "rows by rank" : "owner";
  const std::string amount = rows ? "rows per rank" : "MiB";
  widths[3] = std::max(widths[3], amount.size());
  std::size_t used = 6;  // gaps between columns
  for (const std::size_t width : widths) used += width;
  const std::size_t room = used + 20 < kScreenWidth ? kScreenWidth - used : 20;
  Table table({{"", "tensor", true, "tensor"},
               {"", "shape", true, "shape"},
               {"", "x", false, "tensors"},
               {"", amount, false, "amount"},
               {"", heading, true, "places"}});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string places = placing == Placing::kWhole
                                   ? std::string("all ranks")
                                   : fitting(places_of(report, layout, groups[g]), room);
    table.add_row({fixed[g][0], fixed[g][1], fixed[g][2], fixed[g][3], places});
  }
  return table;
}

}  // namespace shardbench::bench
