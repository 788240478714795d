#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// Rows of `weight` [rows, width] at `indices` (int64, any shape): [..., width]. Throws
/// InvariantError naming the first index outside [0, rows).
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices);

/// Adds row i of grad [..., width] to row indices[i] of `target` [rows, width], in index order by
/// one thread, so that the bits never depend on threads; zeroes it first unless accumulating.
void embedding_weight_grad(const at::Tensor& grad, const at::Tensor& indices,
                           const at::Tensor& target, bool accumulate);

}  // namespace shardbench::ops
