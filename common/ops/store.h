#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// Writes a gradient to its target, or adds it to what is there. Their dtypes may differ: a target
/// is as wide as gradients travel, an operation's result as what it computes in.
inline void store(const at::Tensor& target, const at::Tensor& gradient, bool accumulate) {
  at::Tensor out = target;  // a handle: the memory is the caller's
  if (accumulate) {
    out.add_(gradient);
  } else {
    out.copy_(gradient);
  }
}

}  // namespace shardbench::ops
