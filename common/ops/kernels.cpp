#include "common/ops/kernels.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "common/core/error.h"
#include "common/core/half.h"
#include "common/core/simd.h"

namespace shardbench::ops::kernels {
namespace {

/// What is computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// NaN stays NaN.
template <typename W>
[[gnu::always_inline]] inline W clamp(W x, W low, W high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/// e^x for x in [-87, 88], to 2 units in the last place: 2^n e^r with |r| <= log(2) / 2. log(2) is
/// subtracted in two parts, of which the first is short enough for n times it to be exact; the
/// polynomial is Cephes' (expf).
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float kRound = 0x1.8p23f;  // added and taken away again, it leaves an integer
  const float shifted = x * 0x1.715476p0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r * r + r) + 1.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return p * std::bit_cast<float>(exponent + (127u << 23));
}
[[gnu::always_inline]] inline double exponential(double x) { return std::exp(x); }

/// e^x for any x <= 0 (what rounding leaves above counts as 0) and NaN: zero where that is below
/// the normal numbers of fp32.
template <typename W>
[[gnu::always_inline]] inline W exponential_of_negative(W x) {
  const W value = exponential(clamp(x, W{-87}, W{0}));
  return x < W{-87} ? W{0} : value;
}

// GELU in its tanh form is x s(2u), s the logistic function, u = sqrt(2/pi) (x + 0.044715 x^3).
// Outside +-kGeluEnd the factor is 0 or 1 to all digits, and the cube never overflows inside.
constexpr double kGeluEnd = 9.5;
constexpr double kTwoRoot = 1.5957691216057307117;  // 2 sqrt(2/pi)
constexpr double kCube = 0.044715;

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void gelu_loop(std::int64_t count, const T* __restrict from,
                                             T* __restrict to) {
  constexpr W kEnd{kGeluEnd}, kScale{W(-kTwoRoot)}, kThird{W(kCube)};
  for (std::int64_t i = 0; i < count; ++i) {
    const W x = widen(from[i]);
    const W near = clamp(x, -kEnd, kEnd);
    to[i] = narrow<T>(x / (1 + exponential(kScale * (near + kThird * (near * near * near)))));
  }
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void gelu_backward_loop(std::int64_t count, const T* __restrict grad,
                                                      const T* __restrict from, T* __restrict to) {
  constexpr W kEnd{kGeluEnd}, kScale{W(kTwoRoot)}, kThird{W(kCube)}, kSlope{W(3 * kCube)};
  for (std::int64_t i = 0; i < count; ++i) {
    const W x = clamp(W{widen(from[i])}, -kEnd, kEnd);
    const W square = x * x;
    const W e = exponential(-kScale * (x + kThird * (square * x)));
    const W s = 1 / (1 + e);
    const W slope = kScale * (1 + kSlope * square);
    to[i] = narrow<T>(widen(grad[i]) * (s + x * s * (e * s) * slope));
  }
}

/// The logistic function and 1 minus it, for x within +-80: beyond, both are constant enough.
template <typename W>
struct Logistic {
  [[gnu::always_inline]] explicit Logistic(W x) {
    const W e = exponential(-x);
    value = 1 / (1 + e);
    rest = e * value;
  }
  W value, rest;
};

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void swiglu_loop(std::int64_t count, const T* __restrict gate,
                                               const T* __restrict up, T* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const W x = widen(gate[i]);
    to[i] = narrow<T>(x * Logistic<W>(clamp(x, W{-80}, W{80})).value * widen(up[i]));
  }
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void swiglu_gate_loop(std::int64_t count, const T* __restrict grad,
                                                    const T* __restrict gate,
                                                    const T* __restrict up, T* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const W x = clamp(W{widen(gate[i])}, W{-80}, W{80});
    const Logistic<W> s(x);
    to[i] = narrow<T>(widen(grad[i]) * widen(up[i]) * (s.value + x * s.value * s.rest));
  }
}

// Sums and maxima run in lanes, which a compiler keeps in vector registers of any width.
constexpr std::int64_t kLanes = 32;

struct Larger {
  template <typename W>
  [[gnu::always_inline]] W operator()(W a, W b) const {
    return a > b ? a : b;
  }
};
struct Plus {
  template <typename W>
  [[gnu::always_inline]] W operator()(W a, W b) const {
    return a + b;
  }
};

/// lane = combine(lane, value(i)) for i of [first, end), then lanes in pairs, pairs of pairs, ...
template <typename W, typename Combine, typename Value>
[[gnu::always_inline]] inline W in_lanes(std::int64_t first, std::int64_t end, W start,
                                         Combine combine, Value value) {
  W lanes[kLanes];
  for (W& lane : lanes) lane = start;
  std::int64_t i = first;
  for (; i + kLanes <= end; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = combine(lanes[j], value(i + j));
  }
  for (std::int64_t j = 0; i + j < end; ++j) lanes[j] = combine(lanes[j], value(i + j));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) lanes[j] = combine(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

/// The sum of value(i), in `W` over blocks that are short enough to lose nothing, then in fp64.
template <typename W, typename Value>
[[gnu::always_inline]] inline double sum_by_blocks(std::int64_t count, Value value) {
  constexpr std::int64_t kBlock = 16 * kLanes;
  double sum = 0;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t end = first + kBlock < count ? first + kBlock : count;
    sum += static_cast<double>(in_lanes(first, end, W{0}, Plus{}, value));
  }
  return sum;
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline double largest_loop(std::int64_t count, const T* row) {
  const auto value = [row](std::int64_t i) __attribute__((always_inline)) {
    return W{widen(row[i])};
  };
  return in_lanes(0, count, -std::numeric_limits<W>::infinity(), Larger{}, value);
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline double sum_of_exponentials_loop(std::int64_t count, const T* row,
                                                              double scale, double largest) {
  const W factor = static_cast<W>(scale), shift = static_cast<W>(largest);
  const auto value = [ row, factor, shift ](std::int64_t i) __attribute__((always_inline)) {
    return exponential_of_negative(widen(row[i]) * factor - shift);
  };
  return sum_by_blocks<W>(count, value);
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void exponentials_loop(std::int64_t count, T* row, double scale,
                                                     double shift, double factor) {
  const W by = static_cast<W>(scale), less = static_cast<W>(shift);
  const W times = static_cast<W>(factor);
  for (std::int64_t i = 0; i < count; ++i) {
    row[i] = narrow<T>(times * exponential_of_negative(widen(row[i]) * by - less));
  }
}

template <typename T, typename W = Wide<T>>
[[gnu::always_inline]] inline void softmax_backward_loop(std::int64_t count,
                                                         const T* __restrict weights,
                                                         T* __restrict gradients, double scale,
                                                         double sum) {
  const W by = static_cast<W>(scale), mean = static_cast<W>(sum);
  for (std::int64_t i = 0; i < count; ++i) {
    gradients[i] = narrow<T>(widen(weights[i]) * (widen(gradients[i]) - mean) * by);
  }
}

/// Calls f with a null pointer of the type that stands for `dtype`.
template <typename F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kBFloat16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kFloat16:
      return f(static_cast<Float16*>(nullptr));
    case DType::kFloat64:
      return f(static_cast<double*>(nullptr));
    default:
      SHARDBENCH_CHECK(dtype == DType::kFloat32, "no loop over elements of {}", name_of(dtype));
      return f(static_cast<float*>(nullptr));
  }
}

template <typename T>
const T* in(const void* memory) {
  return static_cast<const T*>(memory);
}
template <typename T>
T* out(void* memory) {
  return static_cast<T*>(memory);
}

}  // namespace

void gelu(DType dtype, std::int64_t count, const void* x, void* y) {
  with_type(dtype, [&]<typename T>(T*) { run_simd<gelu_loop<T>>(count, in<T>(x), out<T>(y)); });
}

void gelu_backward(DType dtype, std::int64_t count, const void* grad, const void* x, void* dx) {
  with_type(dtype, [&]<typename T>(T*) {
    run_simd<gelu_backward_loop<T>>(count, in<T>(grad), in<T>(x), out<T>(dx));
  });
}

void swiglu(DType dtype, std::int64_t count, const void* gate, const void* up, void* y) {
  with_type(dtype, [&]<typename T>(T*) {
    run_simd<swiglu_loop<T>>(count, in<T>(gate), in<T>(up), out<T>(y));
  });
}

void swiglu_gate_backward(DType dtype, std::int64_t count, const void* grad, const void* gate,
                          const void* up, void* dgate) {
  with_type(dtype, [&]<typename T>(T*) {
    run_simd<swiglu_gate_loop<T>>(count, in<T>(grad), in<T>(gate), in<T>(up), out<T>(dgate));
  });
}

double value(DType dtype, const void* row, std::int64_t index) {
  return with_type(dtype, [&]<typename T>(T*) -> double { return widen(in<T>(row)[index]); });
}

ExponentialSum sum_of_exponentials(DType dtype, std::int64_t count, const void* row, double scale) {
  return with_type(dtype, [&]<typename T>(T*) -> ExponentialSum {
    const double largest = scale * run_simd<largest_loop<T>>(count, in<T>(row));
    return {largest, run_simd<sum_of_exponentials_loop<T>>(count, in<T>(row), scale, largest)};
  });
}

void exponentials(DType dtype, std::int64_t count, void* row, double scale, double shift,
                  double factor) {
  with_type(dtype, [&]<typename T>(T*) {
    run_simd<exponentials_loop<T>>(count, out<T>(row), scale, shift, factor);
  });
}

void softmax_backward(DType dtype, std::int64_t count, const void* weights, void* gradients,
                      double scale, double sum) {
  with_type(dtype, [&]<typename T>(T*) {
    run_simd<softmax_backward_loop<T>>(count, in<T>(weights), out<T>(gradients), scale, sum);
  });
}

void cross_entropy_backward(DType dtype, std::int64_t classes, void* row, std::int64_t target,
                            double logsumexp, double factor) {
  with_type(dtype, [&]<typename T>(T*) {
    T& own = out<T>(row)[target];
    const double probability = std::exp(static_cast<double>(widen(own)) - logsumexp);
    run_simd<exponentials_loop<T>>(classes, out<T>(row), 1.0, logsumexp, factor);
    own = narrow<T>(static_cast<Wide<T>>(factor * (probability - 1)));
  });
}

}  // namespace shardbench::ops::kernels
