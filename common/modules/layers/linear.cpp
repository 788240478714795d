#include "common/modules/layers/linear.h"

#include <ATen/ATen.h>

#include <cmath>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/linear.h"

namespace shardbench {

Linear::Linear(std::int64_t in, std::int64_t out, bool bias, Init weight_init)
    : weight_(&add_parameter("weight", {out, in}, weight_init)) {
  if (bias) bias_ = &add_parameter("bias", {out}, Init::constant(0));
}

Linear::Linear(std::int64_t in, std::int64_t out, bool bias)
    : Linear(in, out, bias, Init::uniform(1.0 / std::sqrt(static_cast<double>(in)))) {}

Linear::Linear(Parameter& weight) : weight_(&weight) {
  SHARDBENCH_CHECK(weight.dims().size() == 2, "a Linear shares {}, which is no matrix",
                   weight.name());
  share_parameter(weight);
}

at::Tensor Linear::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  SHARDBENCH_CHECK(x.size(-1) == weight_->dims()[1], "{}: input width {} against weight {} of {}",
                   path(), x.size(-1), weight_->name(), weight_->dims()[1]);
  const at::Tensor kept = weight_->requires_grad() ? saved(x) : at::Tensor();
  return run_op(
      {x}, trainable({weight_, bias_}),
      [&] {
        return as_activation(
            ops::linear(x, weight_->tensor(), bias_ == nullptr ? at::Tensor() : bias_->tensor()));
      },
      [weight = weight_, bias = bias_, kept](const Tensors& grads,
                                             const std::vector<bool>& needs) -> Tensors {
        const at::Tensor& grad = grads[0];
        if (write_zero_if_undefined(grad, {weight, bias})) return {at::Tensor()};
        write_gradient(weight, [&](const at::Tensor& target, bool accumulate) {
          ops::linear_weight_grad(grad, kept, target, accumulate);
        });
        write_gradient(bias, [&](const at::Tensor& target, bool accumulate) {
          ops::linear_bias_grad(grad, target, accumulate);
        });
        if (!needs[0]) return {at::Tensor()};
        return {ops::linear_input_grad(grad, weight->tensor())};
      });
}

}  // namespace shardbench
