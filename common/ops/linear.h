#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// y = x W^T + b. x [..., in], weight [out, in], bias [out] or undefined; returns [..., out].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// dW = grad^T x, written to (or added to) `target` [out, in], whose memory may be undefined
/// before. grad [..., out], x [..., in]. A target of fp32 beside factors of bf16 takes the sums as
/// they are where wide_product.h can; else the result has the dtype of x, rounded once, and a
/// target of another dtype takes it from there (see store.h).
void linear_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                        bool accumulate);
/// db = sum of grad over all but the last dimension, to `target` [out].
void linear_bias_grad(const at::Tensor& grad, const at::Tensor& target, bool accumulate);
/// dx = grad W, [..., in].
at::Tensor linear_input_grad(const at::Tensor& grad, const at::Tensor& weight);

}  // namespace shardbench::ops
