#include "common/ops/conv.h"

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <tuple>

#include "common/core/error.h"
#include "common/ops/store.h"

namespace shardbench::ops {

namespace {

std::size_t spatial_dims(const at::Tensor& x, const ConvSteps& steps) {
  const std::size_t dims = steps.stride.size();
  SHARDBENCH_CHECK(dims >= 1 && dims <= 3 && steps.padding.size() == dims,
                   "a convolution over {} strides and {} paddings", dims, steps.padding.size());
  SHARDBENCH_CHECK_EQ(static_cast<std::size_t>(x.dim()), dims + 2);
  return dims;
}

/// Asked for one gradient at a time, so that the weight's can be on its way to other ranks while
/// the input's is computed. The two share no work.
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& x,
                                                        const at::Tensor& weight,
                                                        const ConvSteps& steps,
                                                        std::array<bool, 3> wanted) {
  const std::vector<std::int64_t> ones(spatial_dims(x, steps), 1), zeros(ones.size(), 0);
  return at::convolution_backward(grad.contiguous(), x, weight, std::nullopt, steps.stride,
                                  steps.padding, ones, /*transposed=*/false, zeros, /*groups=*/1,
                                  wanted);
}

}  // namespace

at::Tensor conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                const ConvSteps& steps) {
  const std::vector<std::int64_t> ones(spatial_dims(x, steps), 1), zeros(ones.size(), 0);
  const std::optional<at::Tensor> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return at::convolution(x, weight, added, steps.stride, steps.padding, ones, /*transposed=*/false,
                         zeros, /*groups=*/1);
}

void conv_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                      bool accumulate, const ConvSteps& steps) {
  // Of the weight only the sizes are used, which the target has too.
  const at::Tensor weight =
      target.scalar_type() == x.scalar_type() ? target : at::empty(target.sizes(), x.options());
  store(target, std::get<1>(backward(grad, x, weight, steps, {false, true, false})), accumulate);
}

void conv_bias_grad(const at::Tensor& grad, const at::Tensor& target, bool accumulate) {
  at::Tensor out = target;
  std::vector<std::int64_t> summed = {0};
  for (std::int64_t d = 2; d < grad.dim(); ++d) summed.push_back(d);
  if (accumulate || target.scalar_type() != grad.scalar_type()) {
    store(target, grad.sum(summed), accumulate);
  } else {
    at::sum_out(out, grad, summed);
  }
}

at::Tensor conv_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                           const ConvSteps& steps) {
  return std::get<0>(backward(grad, x, weight, steps, {true, false, false}));
}

}  // namespace shardbench::ops
