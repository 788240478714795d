#include "common/modules/layers/batch_norm.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/batch_norm.h"
#include "common/ops/forward_context.h"

namespace shardbench {

namespace {

ops::BatchNormNeeds needs_of(bool x, const Parameter& weight, const Parameter& bias) {
  return {x, weight.requires_grad(), bias.requires_grad()};
}

}  // namespace

BatchNorm::BatchNorm(std::int64_t channels, double momentum, double eps)
    : weight_(&add_parameter("weight", {channels}, Init::constant(1))),
      bias_(&add_parameter("bias", {channels}, Init::constant(0))),
      running_mean_(&add_buffer("running_mean", {channels}, 0)),
      running_var_(&add_buffer("running_var", {channels}, 1)),
      momentum_(momentum),
      eps_(eps) {}

at::Tensor BatchNorm::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  SHARDBENCH_CHECK(x.dim() >= 2 && x.size(1) == weight_->dims()[0],
                   "{}: an input of {} dimensions with {} channels against {}", path(), x.dim(),
                   x.dim() < 2 ? 0 : x.size(1), weight_->dims()[0]);
  return ops::forward_context().training ? forward_training(x) : forward_evaluation(x);
}

at::Tensor BatchNorm::forward_training(const at::Tensor& x) {
  if (x.numel() <= x.size(1)) {
    throw UserError::format(
        "{} takes statistics of a batch and got one value per channel, which has no variance: "
        "give a --batch of at least 2 (or a larger image, or fewer stages)",
        path());
  }
  struct Statistics {
    at::Tensor mean, rstd;
  };
  const auto statistics = std::make_shared<Statistics>();
  return run_op(
      {x}, trainable({weight_, bias_}),
      [&] {
        ops::BatchNormResult result = ops::batch_norm_training(
            x, weight_->tensor(), bias_->tensor(), {running_mean_->tensor, running_var_->tensor},
            momentum_, eps_);
        *statistics = {as_activation(result.mean), as_activation(result.rstd)};
        return as_activation(std::move(result.y));
      },
      [weight = weight_, bias = bias_, x = saved(x), statistics, eps = eps_](
          const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight, bias})) return {at::Tensor()};
        const ops::BatchNormGrads result = ops::batch_norm_training_backward(
            grads[0], x, weight->tensor(), statistics->mean, statistics->rstd, eps,
            needs_of(needs[0], *weight, *bias));
        write_gradient_from(weight, result.weight);
        write_gradient_from(bias, result.bias);
        return {result.x};
      });
}

at::Tensor BatchNorm::forward_evaluation(const at::Tensor& x) {
  const ops::RunningStatistics running = {running_mean_->tensor, running_var_->tensor};
  const auto used = std::make_shared<ops::RunningStatistics>();
  const std::vector<Parameter*> parameters = trainable({weight_, bias_});
  const bool link = needs_backward({x}, parameters);
  return run_op(
      {x}, parameters,
      [&] {
        if (link) {  // a training forward may move them before this backward
          *used = {as_activation(running.mean.clone()), as_activation(running.variance.clone())};
        }
        return as_activation(
            ops::batch_norm_evaluation(x, weight_->tensor(), bias_->tensor(), running, eps_));
      },
      [weight = weight_, bias = bias_, x = saved(x), used, eps = eps_](
          const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight, bias})) return {at::Tensor()};
        const ops::BatchNormGrads result = ops::batch_norm_evaluation_backward(
            grads[0], x, weight->tensor(), *used, eps, needs_of(needs[0], *weight, *bias));
        write_gradient_from(weight, result.weight);
        write_gradient_from(bias, result.bias);
        return {result.x};
      });
}

}  // namespace shardbench
