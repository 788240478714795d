// Rows of other frameworks under the strategies of ours that do the same job.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/peer_json.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {
namespace {

constexpr std::size_t kNameWidth = 26;

std::vector<Column> columns_of(const Comparison& comparison) {
  const bool worlds = comparison.request.worlds.size() > 1;
  const bool batches = varies(comparison.request, Axis::kBatch);
  return {{"", "strategy", true, "strategy"},          {"", "peer", true, "peer", true},
          {"", "W", false, "world_size", !worlds},     {"", "batch", false, "batch", !batches},
          {"", "status", true, "status", true},        {"step", "ms", false, "step_ms"},
          {"step", "+-%", false, "step_ci95_percent"}, {"ours", "x faster", false, "times_faster"},
          {"VmHWM", "MiB", false, "rss_peak_mib"},     {"VmHWM", "x ours", false, "rss_peak_times"},
          {"Pss", "MiB", false, "pss_peak_mib"},       {"Pss", "x ours", false, "pss_peak_times"},
          {"losses", "apart", false, "loss_rel_diff"}};
}

Cell interval_cell(const Summary& step) {
  if (step.ci95_half < 0) return kNotMeasured;
  return percent_cell(step.ci95_half / step.median);
}

std::vector<Cell> key_cells(const Row& ours, const PeerRow* peer) {
  const bool right = peer == nullptr ? ours.right() : peer->right();
  return {peer == nullptr ? Cell(ours.strategy())
                          : Cell::named("  " + peer->kind().title, ours.strategy()),
          peer == nullptr ? Cell("") : Cell(peer->peer),
          Cell::of(static_cast<std::int64_t>(ours.config.world_size)), Cell::of(ours.config.batch),
          right ? "right" : ""};
}

/// Cut where it would make the screen wider than the table.
std::string shortened(const std::string& verdict) {
  const std::size_t room = kScreenWidth - kNameWidth;
  return verdict.size() > room ? verdict.substr(0, room - 3) + "..." : verdict;
}

void add_ours(Table& table, const Row& row) {
  std::vector<Cell> cells = key_cells(row, nullptr);
  if (!row.right()) {
    table.add_span(std::move(cells), shortened(verdict_text(row)));
    return;
  }
  for (Cell& cell : std::vector<Cell>{
           ms_cell(row.step.median), interval_cell(row.step), "", mib_cell(row.rss_peak().max), "",
           mib_cell(row.pss_peak().max), "", row.parity.bit_equal ? "0" : kNotMeasured}) {
    cells.push_back(std::move(cell));
  }
  table.add_row(std::move(cells));
}

/// `ours` may be wrong or failed: then nothing is set against it.
void add_peer(Table& table, const Row& ours, const PeerRow& peer) {
  std::vector<Cell> cells = key_cells(ours, &peer);
  if (!peer.right()) {
    table.add_span(std::move(cells), shortened(verdict_text(peer)));
    return;
  }
  const bool both = ours.right();
  for (Cell& cell : std::vector<Cell>{
           ms_cell(peer.step.median), interval_cell(peer.step),
           ratio_to_cell(peer.step.median, both ? ours.step.median : 0), mib_cell(peer.rss_peak()),
           ratio_to_cell(peer.rss_peak(), both ? ours.rss_peak().max : 0), mib_cell(peer.pss()),
           ratio_to_cell(peer.pss(), both ? ours.pss_peak().max : 0),
           Cell::of(fmt::format("{:.0e}", peer.loss_diff), peer.loss_diff)}) {
    cells.push_back(std::move(cell));
  }
  table.add_row(std::move(cells));
}

/// "torch 2.15.0, python 3.11.2".
std::string versions_text(const Comparison& comparison) {
  std::set<std::string> found;
  for (const Block& block : comparison.blocks) {
    for (const PeerRow& peer : block.peers) {
      for (const auto& [name, version] : peer.versions) found.insert(name + " " + version);
    }
  }
  return found.empty() ? "not known" : fmt::format("{}", fmt::join(found, ", "));
}

std::vector<std::string> words_of(const Comparison& comparison) {
  const int steps = comparison.request.base.all_steps();
  const LossBounds bounds = loss_bounds(comparison.request.base.options.compute_dtype);
  return {fmt::format(
      "x faster: the peer's median step over ours. x ours: its memory over ours (VmHWM: resident "
      "peak, Pss: proportional set after the steps, both of the rank with most; a peer's VmHWM "
      "counts from after its set-up). losses apart: largest relative distance from the "
      "single-process reference over {} steps (bound {:.0e}, {:.0e} in the first step); ours are "
      "equal bit for bit. Peers: {}; Gloo.",
      steps, bounds.later, bounds.first, versions_text(comparison))};
}

}  // namespace

Section peers_section(const Comparison& comparison) {
  Table table(columns_of(comparison));
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      add_ours(table, row);
      for (const PeerRow& peer : block.peers) {
        if (peer.kind().counterpart == row.strategy()) add_peer(table, row, peer);
      }
    }
  }
  return {"", {}, std::move(table), words_of(comparison)};
}

}  // namespace shardbench::bench
