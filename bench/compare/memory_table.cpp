#include <fmt/format.h>

#include <algorithm>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {
namespace {

using memory::Category;

double part(const memory::CategoryBytes& bytes, Category category) {
  return static_cast<double>(bytes[static_cast<std::size_t>(category)]);
}

double other_part(const memory::CategoryBytes& bytes) {
  return part(bytes, Category::kTemp) + part(bytes, Category::kOther);
}

std::string peak_place(const train::MemoryReport& memory) {
  const std::string phase(name_of(memory.peak_phase));
  return memory.peak_unit.empty() ? phase : phase + "/" + memory.peak_unit;
}

/// Booked minus calculated persistent bytes, padding apart on both sides.
std::int64_t difference(const RankFigures& rank) {
  return rank.persistent_bytes - rank.memory.padding - rank.formula.persistent();
}

/// A figure that is 0 where the system did not say.
Cell process_cell(double bytes) { return bytes > 0 ? mib_cell(bytes) : Cell(kNotMeasured); }

/// A count that older results do not have.
Cell count_cell(double count) {
  return count < 0 ? Cell(kNotMeasured) : Cell::of(static_cast<std::int64_t>(count));
}

std::vector<Cell> rank_cells(const Row& row) {
  const RankFigures& rank = row.peak_rank();
  const RankFigures& fullest = row.fullest_rank();
  const memory::CategoryBytes& at_peak = rank.memory.at_peak;
  const auto cell = [&](Category category) { return mib_cell(part(at_peak, category)); };
  return {cell(Category::kParam),
          cell(Category::kGrad),
          cell(Category::kOptimizer),
          cell(Category::kGatheredParam),
          cell(Category::kUnshardedGrad),
          cell(Category::kActivation),
          cell(Category::kCommBuffer),
          mib_cell(other_part(at_peak)),
          mib_cell(static_cast<double>(rank.memory.peak)),
          peak_place(rank.memory),
          mib_cell(row.first_step_peak().max),
          if_applies(row.init_peak().max > 0, mib_cell(row.init_peak().max)),
          mib_cell(static_cast<double>(fullest.persistent_bytes)),
          mib_cell(static_cast<double>(fullest.formula.persistent())),
          Cell::of(difference(fullest)),
          Cell::of(fullest.memory.padding),
          process_cell(row.rss_peak().max),
          process_cell(row.pss_peak().max),
          count_cell(row.minor_faults().max),
          count_cell(row.system_allocations().max)};
}

bool ranks_differ(const Row& row) {
  return bytes_differ(row.persistent()) || bytes_differ(row.peak());
}

/// Min, mean and max of every column over the ranks.
void add_spreads(RowTable& table, const Row& row) {
  const auto spread = [&](auto figure) {
    std::vector<double> values;
    for (const RankFigures& rank : row.ranks) values.push_back(figure(rank));
    return spread_of(values);
  };
  std::vector<Spread> columns;
  for (Category category :
       {Category::kParam, Category::kGrad, Category::kOptimizer, Category::kGatheredParam,
        Category::kUnshardedGrad, Category::kActivation, Category::kCommBuffer}) {
    columns.push_back(spread([&](const auto& r) { return part(r.memory.at_peak, category); }));
  }
  columns.push_back(spread([](const auto& r) { return other_part(r.memory.at_peak); }));
  columns.push_back(row.peak());
  const Spread formula =
      spread([](const auto& r) { return static_cast<double>(r.formula.persistent()); });
  const Spread first = row.first_step_peak();
  const Spread init = row.init_peak();
  const Spread states = row.persistent();
  const Spread rss = row.rss_peak();
  const Spread pss = row.pss_peak();
  const Spread faults = row.minor_faults();
  const Spread allocations = row.system_allocations();
  add_min_mean_max(table, row, [&](double Spread::*which) {
    std::vector<Cell> cells;
    for (const Spread& column : columns) cells.push_back(mib_cell(column.*which));
    cells.insert(
        cells.end(),
        {"", mib_cell(first.*which), if_applies(init.max > 0, mib_cell(init.*which)),
         mib_cell(states.*which), mib_cell(formula.*which), "", "", process_cell(rss.*which),
         process_cell(pss.*which), count_cell(faults.*which), count_cell(allocations.*which)});
    return cells;
  });
}

}  // namespace

Section memory_section(const Comparison& comparison) {
  const std::string at_peak = "at the peak of the rank with the largest (MiB)";
  const std::string peaks = "peak in";
  const std::string between = "between steps (MiB)";
  const std::string bytes = "bytes";
  const std::string process = "process (MiB)";
  const std::string step = "in a step";
  const std::vector<const Row*> rows = rows_of(comparison);
  const bool init_known = std::any_of(rows.begin(), rows.end(), [](const Row* row) {
    return row->right() && row->init_peak().max > 0;
  });
  const bool steps_known = std::any_of(rows.begin(), rows.end(), [](const Row* row) {
    return row->right() && row->minor_faults().max >= 0;
  });
  RowTable table(comparison, RowTable::Keys::kAll,
                 {{at_peak, "param", false, "at_peak_param_mib"},
                  {at_peak, "grad", false, "at_peak_grad_mib"},
                  {at_peak, "optim", false, "at_peak_optimizer_mib"},
                  {at_peak, "gathered", false, "at_peak_gathered_param_mib"},
                  {at_peak, "ungrad", false, "at_peak_unsharded_grad_mib"},
                  {at_peak, "act", false, "at_peak_activation_mib"},
                  {at_peak, "comm", false, "at_peak_comm_buffer_mib"},
                  {at_peak, "other", false, "at_peak_other_mib"},
                  {at_peak, "peak", false, "peak_mib"},
                  {"", "at", true, "peak_at"},
                  {peaks, "step 1", false, "first_step_peak_mib"},
                  {peaks, "init", false, "init_peak_mib", !init_known},
                  {between, "states", false, "states_mib"},
                  {between, "formula", false, "states_formula_mib"},
                  {bytes, "diff", false, "states_diff_bytes"},
                  {bytes, "padding", false, "padding_bytes"},
                  {process, "rss", false, "rss_peak_mib"},
                  {process, "pss", false, "pss_peak_mib"},
                  {step, "faults", false, "minor_faults", !steps_known},
                  {step, "allocs", false, "system_allocations", !steps_known}});
  for (const Row* row : rows) {
    if (!row->right()) {
      table.add_verdict(*row);
      continue;
    }
    table.add(*row, rank_cells(*row));
    if (ranks_differ(*row)) add_spreads(table, *row);
  }
  return {"", {}, table.take(), {}};
}

}  // namespace shardbench::bench
