#include "common/ops/batch_norm.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/core/error.h"
#include "common/ops/dtype.h"

namespace shardbench::ops {

BatchNormResult batch_norm_training(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, const RunningStatistics& running,
                                    double momentum, double eps) {
  SHARDBENCH_CHECK(x.dim() >= 2 && x.numel() > x.size(1),
                   "statistics of a batch need more than one value per channel");
  auto [y, mean, rstd] = at::native_batch_norm(
      x, in_compute_type(weight, x), in_compute_type(bias, x), running.mean, running.variance,
      /*training=*/true, momentum, eps);
  return {std::move(y), std::move(mean), std::move(rstd)};
}

at::Tensor batch_norm_evaluation(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, const RunningStatistics& running,
                                 double eps) {
  return std::get<0>(at::native_batch_norm(x, in_compute_type(weight, x), in_compute_type(bias, x),
                                           running.mean, running.variance, /*training=*/false,
                                           /*momentum=*/0, eps));
}

BatchNormGrads batch_norm_training_backward(const at::Tensor& grad, const at::Tensor& x,
                                            const at::Tensor& weight, const at::Tensor& mean,
                                            const at::Tensor& rstd, double eps,
                                            const BatchNormNeeds& needs) {
  auto [dx, dweight, dbias] =
      at::native_batch_norm_backward(grad.contiguous(), x, in_compute_type(weight, x),
                                     /*running_mean=*/{}, /*running_var=*/{}, mean, rstd,
                                     /*train=*/true, eps, {needs.x, needs.weight, needs.bias});
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

BatchNormGrads batch_norm_evaluation_backward(const at::Tensor& grad, const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const RunningStatistics& used, double eps,
                                              const BatchNormNeeds& needs) {
  auto [dx, dweight, dbias] = at::native_batch_norm_backward(
      grad.contiguous(), x, in_compute_type(weight, x), used.mean, used.variance, /*save_mean=*/{},
      /*save_invstd=*/{}, /*train=*/false, eps, {needs.x, needs.weight, needs.bias});
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

}  // namespace shardbench::ops
