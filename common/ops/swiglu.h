#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// silu(gate) * up, with silu(x) = x / (1 + exp(-x)) (Shazeer 2020, equation 6). Shapes are equal.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Gradients of one SwiGLU; undefined where not asked for.
struct SwigluGrads {
  at::Tensor gate;
  at::Tensor up;
};

/// From the gradient of the output and the two inputs; no memory besides the results.
SwigluGrads swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                            bool need_gate, bool need_up);

}  // namespace shardbench::ops
