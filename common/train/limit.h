#pragma once

#include <cstdint>
#include <string>

namespace shardbench::train {

/// The parts of a step that no strategy can do without, each measured by itself on all ranks at
/// once, slowest rank: every operation of one micro-batch at its shortest time (products by the
/// path that the tuning table names), the optimizer, and a copy of memory.
struct LimitPieces {
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  double optimizer_ns_per_element = 0;
  double copied_bytes_per_ns = 0;

  /// Of a step that runs `micro_batches`, steps `elements` and moves `bytes` on one rank.
  double step_ns(int micro_batches, double elements, double bytes) const {
    return micro_batches * static_cast<double>(forward_ns + backward_ns) +
           elements * optimizer_ns_per_element + bytes / copied_bytes_per_ns;
  }
};

std::string serialize(const LimitPieces& pieces);
LimitPieces deserialize_limit(const std::string& text);

}  // namespace shardbench::train
