#include "common/modules/layers/rms_norm.h"

#include <ATen/ATen.h>

#include <memory>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/rms_norm.h"

namespace shardbench {

RMSNorm::RMSNorm(std::int64_t width, double eps)
    : weight_(&add_parameter("weight", {width}, Init::constant(1))), eps_(eps) {}

at::Tensor RMSNorm::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  const auto rrms = std::make_shared<at::Tensor>();
  return run_op(
      {x}, trainable({weight_}),
      [&] {
        ops::RmsNormResult result = ops::rms_norm(x, weight_->tensor(), eps_);
        *rrms = as_activation(std::move(result.rrms));
        return as_activation(std::move(result.y));
      },
      [weight = weight_, x = saved(x), rrms](const Tensors& grads,
                                             const std::vector<bool>& needs) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight})) return {at::Tensor()};
        write_gradient(weight, [&](const at::Tensor& target, bool accumulate) {
          ops::rms_norm_weight_grad(grads[0], x, *rrms, target, accumulate);
        });
        if (!needs[0]) return {at::Tensor()};
        return {ops::rms_norm_input_grad(grads[0], x, *rrms, weight->tensor())};
      });
}

}  // namespace shardbench
