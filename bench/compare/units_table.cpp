// T7: the units of a row, from its plan and its calls; and the settings that no other one beats.

#include <fmt/format.h>

#include <algorithm>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"
#include "common/sharding/flat.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;

constexpr double kMasterBytes = 4;  // what a rank keeps is fp32

/// One unit of one row; bytes.
struct UnitFigures {
  std::string name;
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  double padding = 0;  ///< of its full weights
  Spread kept;         ///< weights that a rank keeps of it
  double gathers = 0;
  double scatters = 0;
  double sent = 0;
  double call_ns = 0;
};

/// Elements of every parameter that each rank keeps.
std::vector<sharding::FlatLayout> layouts_of(const Row& row, const sharding::ModelShape& model) {
  const int world_size = row.config.world_size;
  const std::vector<int> owners = sharding::partition_owners(model, world_size);
  std::vector<sharding::FlatLayout> layouts;
  for (int rank = 0; rank < world_size; ++rank) {
    layouts.push_back(sharding::flatten(model, row.formula == sharding::FormulaKind::kFsdp
                                                   ? sharding::keep_rows(model, world_size, rank)
                                                   : sharding::keep_owned(model, owners, rank)));
  }
  return layouts;
}

void add_calls(UnitFigures& unit, const Row& row) {
  for (const CallTotal& total : row.call_totals) {
    if (total.label != unit.name || total.phase == Phase::kMetrics) continue;
    const bool gathers =
        total.kind == CollectiveKind::kAllGather || total.kind == CollectiveKind::kBroadcast;
    (gathers ? unit.gathers : unit.scatters) += total.calls;
    unit.sent += total.algo_bytes;
    unit.call_ns += total.ns;
  }
}

std::vector<UnitFigures> units_of(const Row& row, const sharding::ModelShape& model) {
  const std::vector<sharding::FlatLayout> layouts = layouts_of(row, model);
  std::vector<UnitFigures> units;
  for (const sharding::UnitShape& shape : sharding::plan_units(model, row.config.options.units)) {
    UnitFigures& unit = units.emplace_back();
    unit.name = shape.name;
    unit.tensors = static_cast<std::int64_t>(shape.parameters.size());
    std::vector<double> kept(layouts.size());
    for (int p : shape.parameters) {
      unit.elements += model.parameters[static_cast<std::size_t>(p)].numel();
      for (std::size_t r = 0; r < layouts.size(); ++r) {
        const sharding::Piece* piece = layouts[r].piece_of(p);
        if (piece != nullptr) kept[r] += static_cast<double>(piece->count) * kMasterBytes;
      }
    }
    const DType dtype = row.config.options.compute_dtype;
    const std::int64_t extent = sharding::unit_buffer(model, shape, dtype).extent;
    unit.padding =
        static_cast<double>(extent - unit.elements) * static_cast<double>(size_of(dtype));
    unit.kept = spread_of(kept);
    add_calls(unit, row);
  }
  return units;
}

Section units_section(const Comparison& comparison, const Row& row) {
  const std::string kept = "kept by a rank";
  const std::string calls = "calls per step";
  RowTable table(comparison, RowTable::Keys::kNone,
                 {{"", "unit", true, "unit"},
                  {"", "tensors", false, "tensors"},
                  {"", "elements", false, "elements"},
                  {"pad", "(bytes)", false, "unit_padding_bytes"},
                  {kept, "max MiB", false, "kept_max_mib"},
                  {kept, "x mean", false, "kept_max_over_mean"},
                  {calls, "gathers", false, "gathers"},
                  {calls, "scatters", false, "scatters"},
                  {"sent", "(MiB)", false, "unit_sent_mib"},
                  {"in calls", "(ms)", false, "unit_call_ms"}});
  const bool recorded = !row.call_totals.empty();
  const auto measured = [&](Cell cell) { return recorded ? std::move(cell) : Cell(kNotMeasured); };
  const auto add = [&](const UnitFigures& unit, bool total) {
    table.add(row, {unit.name, Cell::of(unit.tensors), Cell::of(unit.elements),
                    whole_cell(unit.padding), if_applies(!total, mib_cell(unit.kept.max)),
                    if_applies(!total, ratio_cell(unit.kept.imbalance())),
                    measured(whole_cell(unit.gathers)), measured(whole_cell(unit.scatters)),
                    measured(mib_cell(unit.sent)), measured(ms_cell(unit.call_ns))});
  };
  UnitFigures total;
  total.name = "total";
  for (const UnitFigures& unit : units_of(row, comparison.model)) {
    add(unit, false);
    total.tensors += unit.tensors;
    total.elements += unit.elements;
    total.padding += unit.padding;
    total.gathers += unit.gathers;
    total.scatters += unit.scatters;
    total.sent += unit.sent;
    total.call_ns += unit.call_ns;
  }
  add(total, true);
  const std::string units = varies(comparison.request, Axis::kUnits)
                                ? std::string()
                                : ", units " + row.config.options.units.to_string();
  return {
      fmt::format("{}, {}{}", row.strategy(), block_title(comparison.request, row.config), units),
      {},
      table.take(),
      {}};
}

/// Rows that do the same work with the same strategy: their settings compete.
std::string rivals_key(const Row& row) {
  return fmt::format("{};{};{}", row.strategy(), row.config.world_size,
                     values_of({Axis::kBatch, Axis::kLink}, row.config));
}

/// Another rival is at least as good in both, and better in one.
bool dominated(const Row& row, const std::vector<const Row*>& rivals) {
  const double peak = row.peak().max;
  const std::int64_t calls = row.peak_rank().calls;
  return std::any_of(rivals.begin(), rivals.end(), [&](const Row* other) {
    if (!other->right()) return false;
    const double other_peak = other->peak().max;
    const std::int64_t other_calls = other->peak_rank().calls;
    return other_peak <= peak && other_calls <= calls && (other_peak < peak || other_calls < calls);
  });
}

/// No setting has an effect: what a strategy does not unshard.
bool all_alike(const std::vector<const Row*>& rivals) {
  return std::all_of(rivals.begin(), rivals.end(), [&](const Row* row) {
    return row->right() && rivals.front()->right() &&
           row->peak().max == rivals.front()->peak().max &&
           row->peak_rank().calls == rivals.front()->peak_rank().calls;
  });
}

void add_rival(RowTable& table, const Row& row, const std::vector<const Row*>& rivals) {
  if (!row.right()) {
    table.add_verdict(row);
    return;
  }
  const bool beaten = dominated(row, rivals);
  table.add(row,
            {mib_cell(row.peak().max), Cell::of(row.peak_rank().calls), ms_cell(row.step.median),
             beaten ? Cell::named("", "no") : Cell::named("*", "yes")});
}

}  // namespace

std::vector<Section> units_sections(const Comparison& comparison) {
  std::vector<Section> sections;
  for (const Row* row : rows_of(comparison)) {
    if (!row->shards_parameters()) continue;
    if (row->right()) {
      sections.push_back(units_section(comparison, *row));
      continue;
    }
    RowTable table(comparison, RowTable::Keys::kAll, {{"", "unit", true, "unit"}});
    table.add_verdict(*row);
    sections.push_back({"", {}, table.take(), {}, /*extra=*/true});
  }
  if (sections.empty()) {
    RowTable none(comparison, RowTable::Keys::kNone, {{"", "unit", true, "unit"}});
    sections.push_back({"",
                        {"No strategy here cuts the weights, so no unit is unsharded: add zero3 or "
                         "fsdp to --strategy."},
                        none.take(),
                        {}});
  }
  return sections;
}

Section pareto_section(const Comparison& comparison) {
  RowTable table(comparison, RowTable::Keys::kAll,
                 {{"peak", "(MiB)", false, "peak_mib"},
                  {"calls", "per step", false, "calls"},
                  {"step", "(ms)", false, "step_ms"},
                  {"not", "beaten", true, "not_dominated"}});
  std::vector<const Row*> rows = rows_of(comparison);
  // Rivals stand together, in the order in which the first of them came.
  std::vector<std::string> order;
  for (const Row* row : rows) {
    const std::string key = rivals_key(*row);
    if (std::find(order.begin(), order.end(), key) == order.end()) order.push_back(key);
  }
  std::vector<std::string> notes = {
      "* no other setting of the same strategy, W, batch and link has both a peak as low and calls "
      "as few."};
  for (const std::string& key : order) {
    std::vector<const Row*> rivals;
    for (const Row* row : rows) {
      if (rivals_key(*row) == key) rivals.push_back(row);
    }
    if (rivals.size() > 1 && all_alike(rivals)) {
      notes.push_back(
          fmt::format("{} W={}: the settings make no difference to peak ({} MiB) and "
                      "calls ({}).",
                      rivals[0]->strategy(), rivals[0]->config.world_size,
                      mib(rivals[0]->peak().max), rivals[0]->peak_rank().calls));
      continue;
    }
    for (const Row* row : rivals) add_rival(table, *row, rivals);
  }
  return {"", {}, table.take(), notes};
}

}  // namespace shardbench::bench
