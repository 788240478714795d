#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// GELU in its tanh form, as GPT-2 uses it: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
at::Tensor gelu(const at::Tensor& x);
/// dx from the gradient of the output and the input.
at::Tensor gelu_backward(const at::Tensor& grad, const at::Tensor& x);

/// max(x, 0), written into the memory of `x` (consumed).
at::Tensor relu(const at::Tensor& x);
/// dx from the gradient of the output and the output.
at::Tensor relu_backward(const at::Tensor& grad, const at::Tensor& y);

/// x + branch, written into the memory of `branch` (consumed: its old values are gone). Shapes are
/// equal. The gradient of both is the gradient of the sum.
at::Tensor residual_add(const at::Tensor& x, const at::Tensor& branch);

/// x + rows, where x is [B, ...] and rows [...] is added to each of the B parts; written into the
/// memory of `x` (consumed).
at::Tensor add_to_each(const at::Tensor& x, const at::Tensor& rows);
/// Gradient of `rows`: the sum over dimension 0.
at::Tensor add_to_each_rows_grad(const at::Tensor& grad);

}  // namespace shardbench::ops
