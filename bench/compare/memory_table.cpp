#include <fmt/format.h>

#include "bench/compare/format.h"
#include "bench/compare/screens.h"
#include "bench/compare/table.h"

namespace shardbench::bench {
namespace {

using memory::Category;

double part(const memory::CategoryBytes& bytes, Category category) {
  return static_cast<double>(bytes[static_cast<std::size_t>(category)]);
}

std::string peak_place(const train::MemoryReport& memory) {
  const std::string phase(name_of(memory.peak_phase));
  return memory.peak_unit.empty() ? phase : phase + "/" + memory.peak_unit;
}

/// Booked minus calculated persistent bytes, padding apart on both sides.
std::int64_t difference(const RankFigures& rank) {
  return rank.persistent_bytes - rank.memory.padding - rank.formula.persistent();
}

std::vector<std::string> rank_cells(const std::string& name, const std::string& world,
                                    const RankFigures& rank) {
  const memory::CategoryBytes& at_peak = rank.memory.at_peak;
  const auto cell = [&](Category category) { return mib(part(at_peak, category)); };
  return {name,
          world,
          cell(Category::kParam),
          cell(Category::kGrad),
          cell(Category::kOptimizer),
          cell(Category::kGatheredParam),
          cell(Category::kUnshardedGrad),
          cell(Category::kActivation),
          cell(Category::kCommBuffer),
          mib(part(at_peak, Category::kTemp) + part(at_peak, Category::kOther)),
          mib(static_cast<double>(rank.memory.peak)),
          peak_place(rank.memory),
          mib(static_cast<double>(rank.persistent_bytes)),
          mib(static_cast<double>(rank.formula.persistent())),
          fmt::format("{}", difference(rank)),
          fmt::format("{}", rank.memory.padding)};
}

bool ranks_differ(const Row& row) {
  return bytes_differ(row.persistent()) || bytes_differ(row.peak());
}

/// Min, mean and max of every column over the ranks.
void add_spreads(TextTable& table, const Row& row) {
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
  columns.push_back(spread([](const auto& r) {
    return part(r.memory.at_peak, Category::kTemp) + part(r.memory.at_peak, Category::kOther);
  }));
  columns.push_back(row.peak());
  const Spread formula =
      spread([](const auto& r) { return static_cast<double>(r.formula.persistent()); });
  const Spread states = row.persistent();
  const auto add = [&](const char* name, double Spread::*which) {
    std::vector<std::string> cells = {name, ""};
    for (const Spread& column : columns) cells.push_back(mib(column.*which));
    cells.insert(cells.end(), {"", mib(states.*which), mib(formula.*which), "", ""});
    table.add_row(std::move(cells));
  };
  add("  min", &Spread::min);
  add("  mean", &Spread::mean);
  add("  max", &Spread::max);
}

}  // namespace

std::string memory_table(const Comparison& comparison) {
  const std::string at_peak = "at the peak of the rank with the largest (MiB)";
  const std::string between = "between steps (MiB)";
  const std::string bytes = "bytes";
  TextTable table({{"", "strategy", true},
                   {"", "W"},
                   {at_peak, "param"},
                   {at_peak, "grad"},
                   {at_peak, "optim"},
                   {at_peak, "gathered"},
                   {at_peak, "ungrad"},
                   {at_peak, "act"},
                   {at_peak, "comm"},
                   {at_peak, "other"},
                   {at_peak, "peak"},
                   {"", "at", true},
                   {between, "states"},
                   {between, "formula"},
                   {bytes, "diff"},
                   {bytes, "padding"}});
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      const std::string world = fmt::format("{}", row.config.world_size);
      if (!row.right()) {
        table.add_span({row.strategy(), world}, verdict_text(row));
        continue;
      }
      table.add_row(rank_cells(row.strategy(), world, row.peak_rank()));
      if (ranks_differ(row)) add_spreads(table, row);
    }
  }
  return table.render();
}

}  // namespace shardbench::bench
