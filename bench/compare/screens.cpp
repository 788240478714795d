#include "bench/compare/screens.h"

#include <algorithm>
#include <iterator>

#include "bench/compare/format.h"

namespace shardbench::bench {

const std::vector<std::string>& table_names() {
  // In the order of TableKind.
  static const std::vector<std::string> kNames = {"brief", "full",    "memory", "traffic", "time",
                                                  "units", "scaling", "pareto", "peers"};
  return kNames;
}

std::optional<TableKind> table_kind(const std::string& name) {
  const std::vector<std::string>& names = table_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<TableKind>(std::distance(names.begin(), found));
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

std::vector<const Row*> rows_of(const Comparison& comparison) {
  std::vector<const Row*> rows;
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) rows.push_back(&row);
  }
  return rows;
}

bool bytes_differ(const Spread& spread) { return mib(spread.min) != mib(spread.max); }

bool times_differ(const Spread& spread) { return ms(spread.min) != ms(spread.max); }

Screen make_screen(TableKind kind, const Comparison& comparison) {
  std::vector<int> worlds;
  for (const Block& block : comparison.blocks) {
    if (worlds.empty() || worlds.back() != block.world_size) worlds.push_back(block.world_size);
  }
  if (worlds.empty()) worlds = comparison.request.worlds;
  Screen screen{context_line(comparison.request, comparison.model, worlds), {}};
  if (comparison.blocks.empty()) return screen;
  switch (kind) {
    case TableKind::kBrief:
      for (const Block& block : comparison.blocks) {
        screen.sections.push_back(brief_section(comparison, block));
      }
      if (!comparison.request.peers.empty()) {
        screen.sections.push_back(peers_section(comparison));
        screen.sections.back().extra = true;
      }
      break;
    case TableKind::kPeers:
      screen.sections.push_back(peers_section(comparison));
      break;
    case TableKind::kFull:
      screen.sections.push_back(full_section(comparison));
      break;
    case TableKind::kMemory:
      screen.sections.push_back(memory_section(comparison));
      break;
    case TableKind::kTraffic:
      screen.sections.push_back(traffic_section(comparison));
      break;
    case TableKind::kTime:
      screen.sections.push_back(time_section(comparison));
      break;
    case TableKind::kScaling:
      screen.sections.push_back(scaling_section(comparison));
      break;
    case TableKind::kPareto:
      screen.sections.push_back(pareto_section(comparison));
      break;
    case TableKind::kUnits:
      if (varies(comparison.request, Axis::kUnits)) {
        screen.sections.push_back(pareto_section(comparison));
        screen.sections.back().extra = true;
      }
      for (Section& section : units_sections(comparison)) {
        screen.sections.push_back(std::move(section));
      }
      break;
  }
  return screen;
}

std::string to_text(const Screen& screen) {
  std::string out = screen.context + "\n\n";
  bool first = true;
  for (const Section& section : screen.sections) {
    if (!first) out += '\n';
    first = false;
    if (!section.title.empty()) out += section.title + '\n';
    for (const std::string& text : section.above) out += wrapped("", text);
    if (!section.above.empty()) out += '\n';
    if (!section.table.lines().empty()) out += section.table.render();
    for (const std::string& text : section.below) out += wrapped("", text);
  }
  return out;
}

std::string render_table(TableKind kind, const Comparison& comparison) {
  return to_text(make_screen(kind, comparison));
}

}  // namespace shardbench::bench
