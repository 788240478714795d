#include "common/optim/kernels.h"

#include <bit>
#include <cmath>

#include "common/core/simd.h"

namespace shardbench::optim {
namespace {

[[gnu::always_inline]] inline void adamw_loop(const AdamWStep& step, std::int64_t count,
                                              const float* __restrict gradient,
                                              float* __restrict value,
                                              float* __restrict first_moment,
                                              float* __restrict second_moment) {
  const AdamWStep s = step;
  const float decay = 1.0f - s.lr * s.weight_decay;
  const float take1 = 1.0f - s.beta1;
  const float take2 = 1.0f - s.beta2;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float m = first_moment[i] + take1 * (g - first_moment[i]);
    const float v = s.beta2 * second_moment[i] + take2 * (g * g);
    first_moment[i] = m;
    second_moment[i] = v;
    const float denominator = std::sqrt(v) * s.inverse_root_bias2 + s.eps;
    value[i] = value[i] * decay - s.step_size * (m / denominator);
  }
}

[[gnu::always_inline]] inline void sgd_loop(const SgdStep& step, std::int64_t count,
                                            const float* __restrict gradient,
                                            float* __restrict value,
                                            float* __restrict momentum_buffer) {
  const SgdStep s = step;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.gradient_scale + s.weight_decay * value[i];
    const float b = s.momentum * momentum_buffer[i] + g;
    momentum_buffer[i] = b;
    value[i] = value[i] - s.lr * b;
  }
}

[[gnu::always_inline]] inline bool all_finite_loop(const float* values, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    any |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
  }
  return any == 0;
}

[[gnu::always_inline]] inline double sum_of_squares_loop(const float* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const double x = values[i + j];
      lanes[j] += x * x;
    }
  }
  for (std::int64_t j = 0; i + j < count; ++j) {
    const double x = values[i + j];
    lanes[j] += x * x;
  }
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace

void adamw(const AdamWStep& step, std::int64_t count, const float* gradient, float* value,
           float* first_moment, float* second_moment) {
  run_simd<adamw_loop>(step, count, gradient, value, first_moment, second_moment);
}

void sgd(const SgdStep& step, std::int64_t count, const float* gradient, float* value,
         float* momentum_buffer) {
  run_simd<sgd_loop>(step, count, gradient, value, momentum_buffer);
}

bool all_finite(const float* values, std::int64_t count) {
  return run_simd<all_finite_loop>(values, count);
}

double sum_of_squares(const float* values, std::int64_t count) {
  return run_simd<sum_of_squares_loop>(values, count);
}

}  // namespace shardbench::optim
