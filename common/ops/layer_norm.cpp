#include "common/ops/layer_norm.h"

#include <ATen/ATen.h>

#include "common/ops/dtype.h"

namespace shardbench::ops {

LayerNormResult layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           double eps) {
  // With weights in fp32 LibTorch keeps the statistics of bf16 and fp16 rows in fp32, too.
  auto [y, mean, rstd] = at::native_layer_norm(x, weight.sizes(), in_compute_type(weight, x),
                                               in_compute_type(bias, x), eps);
  return {std::move(y), std::move(mean), std::move(rstd)};
}

LayerNormGrads layer_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                   const at::Tensor& mean, const at::Tensor& rstd,
                                   const at::Tensor& weight, const at::Tensor& bias, bool need_x,
                                   bool need_weight, bool need_bias) {
  auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      grad.contiguous(), x, weight.sizes(), mean, rstd, in_compute_type(weight, x),
      in_compute_type(bias, x), {need_x, need_weight, need_bias});
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

}  // namespace shardbench::ops
