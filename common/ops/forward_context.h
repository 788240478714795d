#pragma once

#include <cstdint>

namespace shardbench::ops {

/// Where the calling thread is in the training run, for layers whose forward depends on it: dropout
/// draws its masks from the numbers, and `training` decides whether dropout drops and whether a
/// batch norm takes the batch's statistics. Sample b of a micro-batch has the global index
/// `first_sample + b`, so a mask is the same whichever rank computes it and however the global
/// batch is cut.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;
  bool training = true;  ///< off: an evaluation
};

/// The calling thread's context, read by layers in forward. The trainer sets it before each
/// micro-batch; a backward uses the context its forward had.
ForwardContext& forward_context();

}  // namespace shardbench::ops
