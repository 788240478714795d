#include <fmt/format.h>

#include <string>

#include "bench/compare/explain.h"
#include "bench/compare/format.h"

namespace shardbench::bench {

std::string explain_units(const Example& example, const std::string& key) {
  const int w = example.row->config.world_size;
  if (key == "unit") return "Unsharded, resharded and reduced together; root is what is left over.";
  if (key == "tensors") return "Parameters in the unit.";
  if (key == "elements") {
    return fmt::format("Their numbers; the total is P = {:.0f}.", example.parameters);
  }
  if (key == "unit_padding_bytes") {
    return "In the unit's full weights: each tensor starts on 64 bytes. Never sent.";
  }
  if (key == "kept_max_mib") {
    return fmt::format("Weights of the unit that the rank with most of them keeps (W={}).", w);
  }
  if (key == "kept_max_over_mean") {
    return "That over the mean of all ranks: 1 is even, W is all on one rank.";
  }
  if (key == "gathers") {
    return "Calls of a rank in one step that unshard the unit: all_gather, or a broadcast from "
           "each owner; in forward and, if it was resharded, in backward.";
  }
  if (key == "scatters") {
    return "Calls that reduce its gradients to where they are kept: reduce_scatter, or a reduce to "
           "each owner.";
  }
  if (key == "unit_sent_mib") return "Bytes that a rank sends for the unit in one step, mean.";
  if (key == "unit_call_ms") {
    return "From issue to completion, added up over its calls; those of several units overlap.";
  }
  if (key == "not_dominated") {
    return "A star: no other setting of the same strategy, W, batch and link has a peak as low and "
           "calls as few.";
  }
  return {};
}

}  // namespace shardbench::bench
