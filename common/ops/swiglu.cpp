#include "common/ops/swiglu.h"

#include <ATen/ATen.h>

#include "common/core/error.h"

namespace shardbench::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  SHARDBENCH_CHECK(gate.sizes() == up.sizes(), "the gate of a SwiGLU has another shape");
  return at::silu(gate).mul_(up);
}

SwigluGrads swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                            bool need_gate, bool need_up) {
  SwigluGrads result;
  if (need_up) result.up = at::silu(gate).mul_(grad);
  if (need_gate) {
    result.gate = at::mul(grad, up);
    // Element by element, so the gradient may be written over its own factor.
    at::silu_backward_out(result.gate, result.gate, gate);
  }
  return result;
}

}  // namespace shardbench::ops
