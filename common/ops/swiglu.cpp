#include "common/ops/swiglu.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/ops/pointwise.h"

namespace shardbench::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  SHARDBENCH_CHECK(gate.sizes() == up.sizes(), "the gate of a SwiGLU has another shape");
  return has_kernels(gate) ? pointwise(kernels::swiglu, gate, up) : at::silu(gate).mul_(up);
}

SwigluGrads swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                            bool need_gate, bool need_up) {
  SwigluGrads result;
  if (has_kernels(gate)) {
    // d(up) = grad silu(gate): the forward's kernel, with the gradient in the place of up.
    if (need_up) result.up = pointwise(kernels::swiglu, gate, grad);
    if (need_gate) result.gate = pointwise(kernels::swiglu_gate_backward, grad, gate, up);
    return result;
  }
  if (need_up) result.up = at::silu(gate).mul_(grad);
  if (need_gate) {
    result.gate = at::mul(grad, up);
    // Element by element, so the gradient may be written over its own factor.
    at::silu_backward_out(result.gate, result.gate, gate);
  }
  return result;
}

}  // namespace shardbench::ops
