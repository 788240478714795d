#pragma once

#include <cmath>
#include <cstdint>

#include "common/core/dtype.h"

/// Loops over host memory that every model's step runs: one pass over the data where LibTorch's
/// operations take several, and vectorised exponentials. Elements are fp32, bf16, fp16 or fp64
/// (`dtype`); functions are computed in fp32, of fp64 in fp64, and rounded once. All SIMD widths
/// give the same bits. Torch-free; the operations' headers say what is computed.
namespace shardbench::ops::kernels {

void gelu(DType dtype, std::int64_t count, const void* x, void* y);
void gelu_backward(DType dtype, std::int64_t count, const void* grad, const void* x, void* dx);

void swiglu(DType dtype, std::int64_t count, const void* gate, const void* up, void* y);
/// The gate's gradient; that of up is swiglu(gate, grad).
void swiglu_gate_backward(DType dtype, std::int64_t count, const void* grad, const void* gate,
                          const void* up, void* dgate);

/// One value of a row.
double value(DType dtype, const void* row, std::int64_t index);
/// sum(e^(scale v)) over the values v of a row, scale > 0, as sum * e^largest with `largest` that
/// of scale v. NaN if a value is, or if the largest is infinite.
struct ExponentialSum {
  double largest;
  double sum;
  double logarithm() const { return largest + std::log(sum); }
};
ExponentialSum sum_of_exponentials(DType dtype, std::int64_t count, const void* row, double scale);
/// Each value v of a row becomes factor * e^(scale v - shift), where no exponent is above 0.
void exponentials(DType dtype, std::int64_t count, void* row, double scale, double shift,
                  double factor);
/// From the gradient of a row of softmax(scale v), in place, to that of v:
/// scale * weights * (gradient - sum), where `sum` is that of weights * gradients.
void softmax_backward(DType dtype, std::int64_t count, const void* weights, void* gradients,
                      double scale, double sum);

/// Each logit v of a row becomes factor * (e^(v - logsumexp) - [it is the target's]), where
/// `logsumexp` is the logarithm of its sum of exponentials.
void cross_entropy_backward(DType dtype, std::int64_t classes, void* row, std::int64_t target,
                            double logsumexp, double factor);

}  // namespace shardbench::ops::kernels
