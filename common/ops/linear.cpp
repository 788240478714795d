#include "common/ops/linear.h"

#include <ATen/ATen.h>

#include "common/ops/linear_candidates.h"
#include "common/ops/shapes.h"
#include "common/ops/tuning.h"

namespace shardbench::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const TuneKey key =
      linear_key(Pass::kForward, x, weight.size(1), weight.size(0), bias.defined(), false);
  return linear_by(chosen(key), x, weight, bias);
}

void linear_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                        bool accumulate) {
  const TuneKey key =
      linear_key(Pass::kWeightGrad, grad, target.size(1), target.size(0), false, accumulate);
  linear_weight_grad_by(chosen(key), grad, x, target, accumulate);
}

void linear_bias_grad(const at::Tensor& grad, const at::Tensor& target, bool accumulate) {
  at::Tensor out = target;
  if (accumulate) {
    out.add_(as_rows(grad).sum(0));
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
