#include "common/modules/layers/conv.h"

#include <ATen/ATen.h>

#include <cmath>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"

namespace shardbench {

namespace {

std::vector<std::int64_t> weight_dims(std::int64_t dims, std::int64_t in, std::int64_t out,
                                      std::int64_t kernel) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dims) + 2, kernel);
  sizes[0] = out;
  sizes[1] = in;
  return sizes;
}

Init initial_weight(const std::vector<std::int64_t>& sizes) {
  double fan_in = 1;
  for (std::size_t d = 1; d < sizes.size(); ++d) fan_in *= static_cast<double>(sizes[d]);
  return Init::uniform(1 / std::sqrt(fan_in));
}

}  // namespace

Conv::Conv(std::int64_t dims, std::int64_t in, std::int64_t out, const ConvOptions& options)
    : steps_{std::vector<std::int64_t>(static_cast<std::size_t>(dims), options.stride),
             std::vector<std::int64_t>(static_cast<std::size_t>(dims), options.padding)} {
  SHARDBENCH_CHECK(options.kernel >= 1 && options.stride >= 1 && options.padding >= 0,
                   "a convolution with kernel {}, stride {}, padding {}", options.kernel,
                   options.stride, options.padding);
  const std::vector<std::int64_t> sizes = weight_dims(dims, in, out, options.kernel);
  weight_ = &add_parameter("weight", sizes, initial_weight(sizes));
  if (options.bias) bias_ = &add_parameter("bias", {out}, Init::constant(0));
}

at::Tensor Conv::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  const std::vector<std::int64_t>& sizes = weight_->dims();
  SHARDBENCH_CHECK(x.dim() == static_cast<std::int64_t>(sizes.size()) && x.size(1) == sizes[1],
                   "{}: an input of {} dimensions with {} channels against weight {} of {}, {}",
                   path(), x.dim(), x.dim() < 2 ? 0 : x.size(1), weight_->name(), sizes.size(),
                   sizes[1]);
  const at::Tensor kept = weight_->requires_grad() ? saved(x) : at::Tensor();
  return run_op(
      {x}, trainable({weight_, bias_}),
      [&] {
        return as_activation(ops::conv(x, weight_->tensor(),
                                       bias_ == nullptr ? at::Tensor() : bias_->tensor(), steps_));
      },
      [weight = weight_, bias = bias_, kept, x_sizes = x.sizes().vec(), steps = steps_](
          const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight, bias})) return {at::Tensor()};
        const at::Tensor grad = grads[0].contiguous();
        write_gradient(weight, [&](const at::Tensor& target, bool accumulate) {
          ops::conv_weight_grad(grad, kept, target, accumulate, steps);
        });
        write_gradient(bias, [&](const at::Tensor& target, bool accumulate) {
          ops::conv_bias_grad(grad, target, accumulate);
        });
        if (!needs[0]) return {at::Tensor()};
        // Beside a frozen weight the input was not kept, and only its sizes matter now.
        const at::Tensor like = kept.defined() ? kept : at::empty(x_sizes, grad.options());
        return {ops::conv_input_grad(grad, like, weight->tensor(), steps)};
      });
}

}  // namespace shardbench
