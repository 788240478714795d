#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace shardbench::ops {

/// Where the calling thread is in the training run: what dropout masks are drawn from. Sample b of
/// a micro-batch has the global index `first_sample + b`, so a mask is the same whichever rank
/// computes it and however the global batch is cut.
struct DropoutContext {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;
  bool training = true;  ///< off: dropout is the identity (evaluation)
};

/// The calling thread's context, read by dropout layers in forward. The trainer sets it before
/// each micro-batch; a backward uses the context its forward had.
DropoutContext& dropout_context();

/// A stable 64-bit id for the op that stands at a module path.
std::uint64_t dropout_op_id(std::string_view path);

/// x with each element zeroed with probability p in [0, 1), the others divided by 1 - p. x is
/// [samples, ...]; the mask is a function of (seed, step, global sample, op id, element in the
/// sample). The gradient is the same function of the output's gradient, so no mask is kept. Callers
/// skip the call when p is 0 or the context is not training.
at::Tensor dropout(const at::Tensor& x, double p, const DropoutContext& context,
                   std::uint64_t op_id);

}  // namespace shardbench::ops
