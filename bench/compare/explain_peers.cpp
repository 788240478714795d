#include <fmt/format.h>

#include "bench/compare/explain.h"
#include "bench/compare/format.h"
#include "bench/compare/peer_json.h"

namespace shardbench::bench {
namespace {

/// The first peer of the block that is right and has a right counterpart.
const PeerRow* example_peer(const Block& block) {
  for (const PeerRow& peer : block.peers) {
    if (peer.right() && counterpart_row(block, peer) != nullptr) return &peer;
  }
  return nullptr;
}

/// Of a ratio: what it is, and how it comes about where a pair is right.
std::string over(const Example& example, const std::string& what, double (*theirs)(const PeerRow&),
                 double (*ours)(const Row&), std::string (*text)(double)) {
  const PeerRow* peer = example_peer(*example.block);
  if (peer == nullptr) return fmt::format("{} of the peer over ours; no pair is right.", what);
  const Row& row = *counterpart_row(*example.block, *peer);
  return fmt::format("{} over our {}, {}: {} / {} = {}.", peer->kind().title, row.strategy(), what,
                     text(theirs(*peer)), text(ours(row)), ratio(theirs(*peer) / ours(row)));
}

std::string losses_text(const Example& example) {
  const PeerRow* peer = example_peer(*example.block);
  const LossBounds bounds = loss_bounds(example.row->config.options.compute_dtype);
  const std::string found =
      peer == nullptr
          ? std::string()
          : fmt::format(" {}: {:.1e} in step 1, at most {:.1e} (step {}).", peer->kind().title,
                        peer->first_loss_diff, peer->loss_diff, peer->worst_step);
  return fmt::format(
      "Largest relative distance of a step's loss from the single-process reference.{} Above "
      "{:.0e} in step 1 or {:.0e} later a row says WRONG and has no times.",
      found, bounds.first, bounds.later);
}

}  // namespace

std::string explain_peers(const Example& example, const std::string& key) {
  if (key == "times_faster") {
    return over(
        example, "median step ms", [](const PeerRow& p) { return p.step.median; },
        [](const Row& r) { return r.step.median; }, ms);
  }
  if (key == "rss_peak_times") {
    return over(
        example, "VmHWM MiB", [](const PeerRow& p) { return p.rss_peak(); },
        [](const Row& r) { return r.rss_peak().max; }, mib);
  }
  if (key == "pss_peak_times") {
    return over(
        example, "Pss MiB", [](const PeerRow& p) { return p.pss(); },
        [](const Row& r) { return r.pss_peak().max; }, mib);
  }
  return key == "loss_rel_diff" ? losses_text(example) : std::string();
}

}  // namespace shardbench::bench
