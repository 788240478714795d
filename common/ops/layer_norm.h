#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// What a layer norm leaves behind: y like x, and per row the mean and 1 / standard deviation (fp32
/// for bf16 and fp16).
struct LayerNormResult {
  at::Tensor y;
  at::Tensor mean;
  at::Tensor rstd;
};

/// y = (x - mean) * rstd * weight + bias over the last dimension. x [..., width], weight and bias
/// [width].
LayerNormResult layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           double eps);

/// Gradients of one layer norm; undefined where not asked for. Those of weights are fp32 for bf16
/// and fp16.
struct LayerNormGrads {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
};

/// All gradients in one pass over x, which they share (so the weights' do not come out earlier
/// than the input's).
LayerNormGrads layer_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                   const at::Tensor& mean, const at::Tensor& rstd,
                                   const at::Tensor& weight, const at::Tensor& bias, bool need_x,
                                   bool need_weight, bool need_bias);

}  // namespace shardbench::ops
