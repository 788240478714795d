#include "common/ops/elementwise.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/ops/pointwise.h"

namespace shardbench::ops {

at::Tensor gelu(const at::Tensor& x) {
  return has_kernels(x) ? pointwise(kernels::gelu, x) : at::gelu(x, "tanh");
}

at::Tensor gelu_backward(const at::Tensor& grad, const at::Tensor& x) {
  return has_kernels(x) ? pointwise(kernels::gelu_backward, grad, x)
                        : at::gelu_backward(grad.contiguous(), x, "tanh");
}

at::Tensor relu(const at::Tensor& x) { return x.detach().relu_(); }

at::Tensor relu_backward(const at::Tensor& grad, const at::Tensor& y) {
  return at::threshold_backward(grad, y, 0);
}

at::Tensor residual_add(const at::Tensor& x, const at::Tensor& branch) {
  SHARDBENCH_CHECK(x.sizes() == branch.sizes(), "a residual branch changes the shape");
  return branch.detach().add_(x);
}

at::Tensor add_to_each(const at::Tensor& x, const at::Tensor& rows) {
  return x.detach().add_(rows);
}

at::Tensor add_to_each_rows_grad(const at::Tensor& grad) { return grad.sum(0); }

}  // namespace shardbench::ops
