#include "common/ops/swiglu.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/ops/pointwise.h"

namespace shardbench::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  SHARDBENCH_CHECK(gate.sizes() == up.sizes(), "the gate of a SwiGLU has another shape");
  if (!has_kernels(gate)) return at::silu(gate).mul_(up);
  const at::Tensor g = gate.contiguous(), u = up.contiguous();
  at::Tensor y = at::empty(g.sizes(), g.options());
  for_parts(g.numel(), [&](std::int64_t first, std::int64_t count) {
    kernels::swiglu(dtype_of(g), count, element_of(g, first), element_of(u, first),
                    element_to(y, first));
  });
  return y;
}

SwigluGrads swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                            bool need_gate, bool need_up) {
  SwigluGrads result;
  if (has_kernels(gate)) {
    const at::Tensor dy = grad.contiguous(), g = gate.contiguous(), u = up.contiguous();
    if (need_gate) result.gate = at::empty(g.sizes(), g.options());
    if (need_up) result.up = at::empty(g.sizes(), g.options());
    for_parts(g.numel(), [&](std::int64_t first, std::int64_t count) {
      kernels::swiglu_backward(dtype_of(g), count, element_of(dy, first), element_of(g, first),
                               element_of(u, first),
                               need_gate ? element_to(result.gate, first) : nullptr,
                               need_up ? element_to(result.up, first) : nullptr);
    });
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
