#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/compare/format.h"
#include "bench/layout/report.h"
#include "common/sharding/layout.h"

namespace shardbench::bench {
namespace {

constexpr std::size_t kManyWorlds = 16;
constexpr std::size_t kBriefUnits = 16;

std::string title_of(const char* what, const Layout& layout) {
  return fmt::format("{}, {}, W={}", what, layout.placement.strategy, layout.world_size);
}

std::vector<const Layout*> all_of(const LayoutReport& report) {
  std::vector<const Layout*> layouts;
  for (const Layout& layout : report.layouts) layouts.push_back(&layout);
  return layouts;
}

std::set<int> worlds_of(const std::vector<const Layout*>& layouts) {
  std::set<int> worlds;
  for (const Layout* layout : layouts) worlds.insert(layout->world_size);
  return worlds;
}

/// Of many world sizes: powers of two, the first and last, and where each strategy is least even.
std::vector<const Layout*> chosen(const LayoutReport& report) {
  const std::set<int> worlds = worlds_of(all_of(report));
  std::set<int> shown;
  for (const int world_size : worlds) {
    if ((world_size & (world_size - 1)) == 0) shown.insert(world_size);
  }
  shown.insert({*worlds.begin(), *worlds.rbegin()});
  const std::size_t strategies = report.layouts.size() / worlds.size();
  for (std::size_t s = 0; s < strategies; ++s) {
    const Layout* worst = &report.layouts[s];
    for (std::size_t i = s; i < report.layouts.size(); i += strategies) {
      if (report.layouts[i].balance() > worst->balance()) worst = &report.layouts[i];
    }
    shown.insert(worst->world_size);
  }
  std::vector<const Layout*> layouts;
  for (const Layout& layout : report.layouts) {
    if (worlds.size() <= kManyWorlds || shown.contains(layout.world_size)) {
      layouts.push_back(&layout);
    }
  }
  return layouts;
}

/// Why a layout is as even or uneven as it is.
std::string balance_text(const LayoutReport& report, const Layout& layout) {
  const std::string name = fmt::format("{} W={}", layout.placement.strategy, layout.world_size);
  if (layout.max_bytes == layout.min_bytes) {
    return fmt::format("{}: every rank keeps the same.", name);
  }
  std::string text = fmt::format("{}: rank {} keeps {:.2f} x the mean", name, layout.fullest_rank,
                                 layout.balance());
  if (layout.owner.empty()) return text + " (rows do not divide evenly).";
  std::int64_t largest = -1;
  std::string tensor;
  for (std::size_t i = 0; i < layout.owner.size(); ++i) {
    if (layout.owner[i] != layout.fullest_rank) continue;
    if (report.model.parameters[i].numel() <= largest) continue;
    largest = report.model.parameters[i].numel();
    tensor = report.model.parameters[i].name;
  }
  const double share =
      static_cast<double>(largest) / static_cast<double>(report.model.parameter_count());
  return text +
         fmt::format("; it owns {}, {} % of the model, which stays whole.", tensor, percent(share));
}

/// Every rank's rows, tensor by tensor; ranks without any at the end are counted.
std::string all_rows(const LayoutReport& report, const Layout& layout) {
  std::string out;
  for (const sharding::ParameterShape& parameter : report.model.parameters) {
    std::string text;
    for (const sharding::SliceRun& run :
         sharding::slice_runs(parameter.rows(), layout.world_size)) {
      if (run.count == 0) {
        text += fmt::format(" {} x{}", kDash, run.last_rank - run.first_rank + 1);
        continue;
      }
      for (int rank = run.first_rank; rank <= run.last_rank; ++rank) {
        text += ' ' + row_range_text(sharding::slice_of(parameter.rows(), layout.world_size, rank));
      }
    }
    out += wrapped("  ", parameter.name + ":" + text);
  }
  return out;
}

std::string units_text(const LayoutReport& report, const Layout& layout, bool brief) {
  Table table = layout_units_table(report, layout, brief);
  std::string note;
  if (brief && table.lines().size() > kBriefUnits) {
    Table first(table.columns());
    for (std::size_t i = 0; i < kBriefUnits; ++i) first.add_row(table.lines()[i].cells);
    note = fmt::format("... and {} more rows: --table units\n", table.lines().size() - kBriefUnits);
    table = std::move(first);
  }
  return fmt::format("\n{}\n{}{}", title_of("Units", layout), table.render(), note);
}

std::string tensors_text(const LayoutReport& report, const Layout& layout, bool brief) {
  if (!brief && layout.placement.sharded() == Placing::kRows) {
    return fmt::format("\n{}\n{}", title_of("Rows of each tensor by rank", layout),
                       all_rows(report, layout));
  }
  const Table table =
      brief ? layout_brief_tensors_table(report, layout) : layout_tensors_table(report, layout);
  return fmt::format("\n{}\n{}", title_of("Tensors", layout), table.render());
}

std::string ranks_text(const LayoutReport& report, const Layout& layout) {
  return fmt::format("\n{}\n{}", title_of("Ranks", layout),
                     layout_ranks_table(report, layout).render());
}

std::string brief_text(const LayoutReport& report) {
  const std::vector<const Layout*> layouts = chosen(report);
  const std::set<int> worlds = worlds_of(all_of(report));
  const bool one = worlds.size() == 1;
  std::string out = '\n' + layout_summary_table(layouts).render();
  const std::size_t hidden = worlds.size() - worlds_of(layouts).size();
  if (hidden > 0) out += fmt::format("... and {} more world sizes: --table summary\n", hidden);
  if (one) {
    for (const Layout& layout : report.layouts) {
      out += units_text(report, layout, true) + tensors_text(report, layout, true);
    }
  }
  // One line per strategy, at the largest world size.
  out += '\n';
  const char* head = "Balance  ";
  for (const Layout& layout : report.layouts) {
    if (layout.world_size != *worlds.rbegin()) continue;
    out += wrapped(head, balance_text(report, layout));
    head = "         ";
  }
  return out + wrapped("Next     ", one ? "--table full (every tensor and rank), ranks; "
                                          "--world 1-1024; --format json"
                                        : "one world size alone shows units and tensors; --table "
                                          "full, units, tensors, ranks");
}

}  // namespace

std::string layout_text(const LayoutReport& report, LayoutTable kind) {
  std::string out = layout_line(report) + '\n';
  if (kind == LayoutTable::kBrief) return out + brief_text(report);
  const bool full = kind == LayoutTable::kFull;
  if (full || kind == LayoutTable::kSummary) {
    out += '\n' + layout_summary_table(all_of(report)).render();
  }
  for (const Layout& layout : report.layouts) {
    if (full || kind == LayoutTable::kUnits) out += units_text(report, layout, false);
    if (full || kind == LayoutTable::kTensors) out += tensors_text(report, layout, false);
    if (full || kind == LayoutTable::kRanks) out += ranks_text(report, layout);
  }
  return out;
}

std::string layout_markdown(const LayoutReport& report, LayoutTable kind) {
  std::string out = layout_line(report) + '\n';
  const bool full = kind == LayoutTable::kFull;
  if (full || kind == LayoutTable::kBrief || kind == LayoutTable::kSummary) {
    const bool brief = kind == LayoutTable::kBrief;
    out += '\n' + to_markdown(layout_summary_table(brief ? chosen(report) : all_of(report)));
  }
  const auto add = [&](bool wanted, const char* what, const Layout& layout, const Table& table) {
    if (wanted) out += fmt::format("\n{}\n\n{}", title_of(what, layout), to_markdown(table));
  };
  for (const Layout& layout : report.layouts) {
    add(full || kind == LayoutTable::kUnits, "Units", layout,
        layout_units_table(report, layout, false));
    add(full || kind == LayoutTable::kTensors, "Tensors", layout,
        layout_tensors_table(report, layout));
    add(full || kind == LayoutTable::kRanks, "Ranks", layout, layout_ranks_table(report, layout));
  }
  return out;
}

std::string layout_csv(const LayoutReport& report, LayoutTable kind) {
  std::vector<Table> tables;
  for (const Layout& layout : report.layouts) {
    switch (kind) {
      case LayoutTable::kUnits:
        tables.push_back(layout_units_table(report, layout, false));
        break;
      case LayoutTable::kTensors:
        tables.push_back(layout_tensors_table(report, layout));
        break;
      case LayoutTable::kRanks:
        tables.push_back(layout_ranks_table(report, layout));
        break;
      case LayoutTable::kBrief:
      case LayoutTable::kFull:
      case LayoutTable::kSummary:
        break;
    }
  }
  if (tables.empty()) tables.push_back(layout_summary_table(all_of(report)));
  std::vector<const Table*> all;
  for (const Table& table : tables) all.push_back(&table);
  return to_csv(all);
}

}  // namespace shardbench::bench
