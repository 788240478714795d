#include "common/ops/linear.h"

#include <ATen/ATen.h>

#include "common/ops/shapes.h"

namespace shardbench::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = as_rows(x);
  const at::Tensor y =
      bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
  return y.view(with_last_dimension(x, weight.size(0)));
}

void linear_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                        bool accumulate) {
  at::Tensor out = target;  // a handle: the memory is the caller's
  const at::Tensor grad_rows = as_rows(grad);
  const at::Tensor x_rows = as_rows(x);
  if (accumulate) {
    at::addmm_out(out, out, grad_rows.t(), x_rows);
  } else {
    at::mm_out(out, grad_rows.t(), x_rows);
  }
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
  return at::mm(as_rows(grad), weight).view(with_last_dimension(grad, weight.size(1)));
}

}  // namespace shardbench::ops
