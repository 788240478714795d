#pragma once

#include <cstdint>

namespace shardbench::optim {

/// AdamW on `count` elements (decoupled decay; Loshchilov and Hutter 2019, algorithm 2):
///   p -= lr wd p;  m += (1-b1)(g-m);  v = b2 v + (1-b2) g g;
///   p -= step_size m / (sqrt(v) inverse_root_bias2 + eps)
/// with g = gradient_scale x gradient, step_size = lr / (1 - b1^t), inverse_root_bias2 =
/// 1 / sqrt(1 - b2^t), t = 1 at the first step. Element-wise and never contracted, so the bits do
/// not depend on where memory is cut.
struct AdamWStep {
  float lr, weight_decay, beta1, beta2, eps, step_size, inverse_root_bias2, gradient_scale;
};
void adamw(const AdamWStep& step, std::int64_t count, const float* gradient, float* value,
           float* first_moment, float* second_moment);

/// SGD with momentum as torch::optim::SGD: g += wd p; b = momentum b + g (b = 0 before the first
/// step); p -= lr b.
struct SgdStep {
  float lr, weight_decay, momentum, gradient_scale;
};
void sgd(const SgdStep& step, std::int64_t count, const float* gradient, float* value,
         float* momentum_buffer);

/// Whether none of the values is infinite or NaN.
bool all_finite(const float* values, std::int64_t count);

/// Sum of squares in double, in an order that depends on `count` only.
double sum_of_squares(const float* values, std::int64_t count);

}  // namespace shardbench::optim
