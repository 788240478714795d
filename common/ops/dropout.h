#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "common/ops/forward_context.h"

namespace shardbench::ops {

/// A stable 64-bit id for the op that stands at a module path.
std::uint64_t dropout_op_id(std::string_view path);

/// x with each element zeroed with probability p in [0, 1), the others divided by 1 - p. x is
/// [samples, ...]; the mask is a function of (seed, step, global sample, op id, element in the
/// sample). The gradient is the same function of the output's gradient, so no mask is kept. Callers
/// skip the call when p is 0 or the context is not training.
at::Tensor dropout(const at::Tensor& x, double p, const ForwardContext& context,
                   std::uint64_t op_id);

}  // namespace shardbench::ops
