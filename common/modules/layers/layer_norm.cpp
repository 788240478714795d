#include "common/modules/layers/layer_norm.h"

#include <ATen/ATen.h>

#include <memory>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/layer_norm.h"

namespace shardbench {

LayerNorm::LayerNorm(std::int64_t width, double eps)
    : weight_(&add_parameter("weight", {width}, Init::constant(1))),
      bias_(&add_parameter("bias", {width}, Init::constant(0))),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  struct Statistics {
    at::Tensor mean, rstd;
  };
  const auto statistics = std::make_shared<Statistics>();
  return run_op(
      {x}, trainable({weight_, bias_}),
      [&] {
        ops::LayerNormResult result = ops::layer_norm(x, weight_->tensor(), bias_->tensor(), eps_);
        *statistics = {as_activation(result.mean), as_activation(result.rstd)};
        return as_activation(std::move(result.y));
      },
      [weight = weight_, bias = bias_, x = saved(x), statistics](
          const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight, bias})) return {at::Tensor()};
        const ops::LayerNormGrads result = ops::layer_norm_backward(
            grads[0], x, statistics->mean, statistics->rstd, weight->tensor(), bias->tensor(),
            needs[0], weight->requires_grad(), bias->requires_grad());
        write_gradient_from(weight, result.weight);
        write_gradient_from(bias, result.bias);
        return {result.x};
      });
}

}  // namespace shardbench
