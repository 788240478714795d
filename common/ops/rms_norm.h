#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// What an RMS norm leaves behind: y like x, and per row 1 / root mean square (fp32 for bf16 and
/// fp16, which are computed in fp32).
struct RmsNormResult {
  at::Tensor y;
  at::Tensor rrms;
};

/// y = x * weight / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich 2019,
/// equation 4). x [..., width], weight [width]; rrms has one number per row.
RmsNormResult rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// dweight = sum over rows of grad * x * rrms, written to (or added to) `target` [width] of any
/// dtype, whose memory may be undefined before. By rows in order, in double precision, so that the
/// bits never depend on threads.
void rms_norm_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                          const at::Tensor& target, bool accumulate);

/// dx = rrms * (g - x * rrms^2 * mean(g * x)) with g = grad * weight, like x.
at::Tensor rms_norm_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                               const at::Tensor& weight);

}  // namespace shardbench::ops
