#include "common/ops/linear.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/ops/dtype.h"
#include "common/ops/linear_candidates.h"
#include "common/ops/on_host.h"
#include "common/ops/shapes.h"
#include "common/ops/store.h"
#include "common/ops/tuning.h"
#include "common/ops/wide_product.h"

namespace shardbench::ops {

namespace {

/// What is computed before it goes into a target of another dtype stays in the cache meanwhile.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

void weight_grad_of_one_dtype(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                              bool accumulate) {
  const TuneKey key =
      linear_key(Pass::kWeightGrad, grad, target.size(1), target.size(0), false, accumulate);
  linear_weight_grad_by(chosen(key), grad, x, target, accumulate);
}

/// Whether the product can go into its wider target as it is.
bool goes_wide(const at::Tensor& x, const at::Tensor& target) {
  return tuning_mode() != TuneMode::kOff && on_host(x) && target.scalar_type() == at::kFloat &&
         target.is_contiguous() && has_wide_product(dtype_of(x));
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const TuneKey key =
      linear_key(Pass::kForward, x, weight.size(1), weight.size(0), bias.defined(), false);
  return linear_by(chosen(key), x, weight, bias);
}

void linear_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                        bool accumulate) {
  if (target.scalar_type() == x.scalar_type()) {
    weight_grad_of_one_dtype(grad, x, target, accumulate);
    return;
  }
  const at::Tensor grad_rows = as_rows(grad), x_rows = as_rows(x);
  if (goes_wide(x, target)) return wide_weight_grad(grad_rows, x_rows, target, accumulate);
  const std::int64_t out = target.size(0), in = target.size(1);
  constexpr std::int64_t kMultiple = 64;
  const std::int64_t block =
      std::max(kMultiple, kBlockElements / std::max<std::int64_t>(1, in) / kMultiple * kMultiple);
  for (std::int64_t first = 0; first < out; first += block) {
    const std::int64_t count = std::min(block, out - first);
    const at::Tensor part = at::empty({count, in}, x.options());
    weight_grad_of_one_dtype(grad_rows.narrow(1, first, count), x_rows, part, false);
    store(target.narrow(0, first, count), part, accumulate);
  }
}

void linear_bias_grad(const at::Tensor& grad, const at::Tensor& target, bool accumulate) {
  at::Tensor out = target;
  if (accumulate || target.scalar_type() != grad.scalar_type()) {
    store(target, as_rows(grad).sum(0), accumulate);
  } else {
    at::sum_out(out, as_rows(grad), 0);
  }
}

at::Tensor linear_input_grad(const at::Tensor& grad, const at::Tensor& weight) {
  const TuneKey key =
      linear_key(Pass::kInputGrad, grad, weight.size(1), weight.size(0), false, false);
  return linear_input_grad_by(chosen(key), grad, weight);
}

}  // namespace shardbench::ops
