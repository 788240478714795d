#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace shardbench::ops {

/// How a convolution's window moves: one number per spatial dimension (one to three of them).
/// Padding is with zeros, on both sides.
struct ConvSteps {
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
};

/// Cross-correlation, as every framework calls convolution. x [N, in, spatial...], weight
/// [out, in, kernel...], bias [out] or undefined; returns [N, out, spatial'...] with
/// spatial' = floor((spatial + 2 padding - kernel) / stride) + 1.
at::Tensor conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                const ConvSteps& steps);

/// The weight's gradient, written to (or added to) `target` [out, in, kernel...], whose memory may
/// be undefined before. grad [N, out, spatial'...], x [N, in, spatial...]. Uses one temporary of
/// the weight's size: no kernel of ATen's writes into memory of the caller's. The same bits for the
/// same values, wherever they lie; added as a whole, after the sum over the batch.
void conv_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                      bool accumulate, const ConvSteps& steps);
/// The bias's: the sum of grad over all but dimension 1, to `target` [out].
void conv_bias_grad(const at::Tensor& grad, const at::Tensor& target, bool accumulate);
/// dx, like `x`, of which only sizes are used (its values may be undefined).
at::Tensor conv_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                           const ConvSteps& steps);

}  // namespace shardbench::ops
