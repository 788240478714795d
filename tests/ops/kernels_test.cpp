#include "common/ops/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "common/comm/convert.h"
#include "common/core/error.h"
#include "tests/support/simd.h"

namespace shardbench::ops {
namespace {

using testing::WithSimdWidth;

constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
const float kInfinity = std::numeric_limits<float>::infinity();

/// Values from -limit to limit in memory of a dtype, and what they are after rounding to it.
struct Values {
  Values(DType type, std::int64_t n, float limit) : dtype(type), count(n) {
    std::vector<float> drawn(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      // Halves of a golden ratio fill the interval evenly.
      const double part = static_cast<double>(i) * 0.6180339887498949;
      drawn[static_cast<std::size_t>(i)] =
          limit * static_cast<float>(2 * (part - std::floor(part)) - 1);
    }
    set(drawn);
  }
  void set(const std::vector<float>& values) {
    memory.resize(values.size() * size_of(dtype));
    comm::convert({values.data(), count, DType::kFloat32}, {memory.data(), count, dtype});
  }
  std::vector<float> wide() const {
    std::vector<float> values(static_cast<std::size_t>(count));
    comm::convert({memory.data(), count, dtype}, {values.data(), count, DType::kFloat32});
    return values;
  }
  DType dtype;
  std::int64_t count;
  std::vector<std::byte> memory;
};

/// The relative rounding error of a dtype.
double unit(DType dtype) {
  return dtype == DType::kFloat32 ? 0x1p-23 : (dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11);
}

/// Each result within a few roundings of the exact one, those of an exponent of up to 40 among
/// them; below fp16's normal numbers, absolutely.
void expect_values(const Values& results, const std::function<double(std::size_t)>& exact,
                   double scale) {
  const std::vector<float> values = results.wide();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = exact(i);
    const double bound = (40 * unit(DType::kFloat32) + 2 * unit(results.dtype)) *
                         std::max(std::abs(expected), 1e-3 * scale);
    ASSERT_NEAR(values[i], expected, bound) << i << " in " << name_of(results.dtype);
  }
}

double gelu_of(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double root = std::sqrt(2 / M_PI);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}
double logistic_of(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Kernels, GeluAndItsGradient) {
  for (const DType dtype : kTypes) {
    const Values x(dtype, 5001, 12), grad(dtype, 5001, 2);
    Values y(dtype, 5001, 0), dx(dtype, 5001, 0);
    kernels::gelu(dtype, x.count, x.memory.data(), y.memory.data());
    kernels::gelu_backward(dtype, x.count, grad.memory.data(), x.memory.data(), dx.memory.data());
    const std::vector<float> at = x.wide(), g = grad.wide();
    expect_values(
        y, [&](std::size_t i) { return gelu_of(at[i]); }, 1);
    expect_values(
        dx, [&](std::size_t i) { return g[i] * gelu_slope(at[i]); }, 10);
  }
}

TEST(Kernels, GeluFarOutIsTheIdentityOrNothing) {
  Values x(DType::kFloat32, 6, 1), y = x, dx = x;
  x.set({1e30f, -1e30f, 100, -100, 0, std::nanf("")});
  const Values ones = [&] {
    Values v = x;
    v.set({1, 1, 1, 1, 1, 1});
    return v;
  }();
  kernels::gelu(x.dtype, x.count, x.memory.data(), y.memory.data());
  kernels::gelu_backward(x.dtype, x.count, ones.memory.data(), x.memory.data(), dx.memory.data());
  const std::vector<float> values = y.wide(), slopes = dx.wide();
  EXPECT_EQ(values[0], 1e30f);
  EXPECT_LT(std::abs(values[1]), 1e-2f);  // of 1e30
  EXPECT_EQ(values[2], 100);
  EXPECT_LT(std::abs(values[3]), 1e-30f);
  EXPECT_EQ(values[4], 0);
  EXPECT_TRUE(std::isnan(values[5]));
  EXPECT_EQ(slopes[0], 1);
  EXPECT_LT(std::abs(slopes[1]), 1e-28f);
  EXPECT_EQ(slopes[4], 0.5f);
  EXPECT_TRUE(std::isnan(slopes[5]));
}

TEST(Kernels, SwigluAndItsGradients) {
  for (const DType dtype : kTypes) {
    const Values gate(dtype, 3001, 10), up(dtype, 3001, 3), grad(dtype, 3001, 2);
    Values y(dtype, 3001, 0), dgate = y, dup = y;
    kernels::swiglu(dtype, gate.count, gate.memory.data(), up.memory.data(), y.memory.data());
    kernels::swiglu(dtype, gate.count, gate.memory.data(), grad.memory.data(), dup.memory.data());
    kernels::swiglu_gate_backward(dtype, gate.count, grad.memory.data(), gate.memory.data(),
                                  up.memory.data(), dgate.memory.data());
    const std::vector<float> x = gate.wide(), u = up.wide(), g = grad.wide();
    const auto silu = [&](std::size_t i) { return x[i] * logistic_of(x[i]); };
    expect_values(
        y, [&](std::size_t i) { return silu(i) * u[i]; }, 10);
    expect_values(
        dup, [&](std::size_t i) { return silu(i) * g[i]; }, 10);
    expect_values(
        dgate,
        [&](std::size_t i) {
          const double s = logistic_of(x[i]);
          return g[i] * u[i] * (s + x[i] * s * (1 - s));
        },
        10);
  }
}

TEST(Kernels, LogSumExpAndSoftmaxOfRowsOfAnyLength) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t count : {1, 31, 32, 33, 511, 513, 50257}) {
      Values row(dtype, count, 20);
      const std::vector<float> v = row.wide();
      const double scale = 0.25, largest = scale * *std::max_element(v.begin(), v.end());
      double sum = 0;
      for (const float x : v) sum += std::exp(scale * x - largest);
      const double exact = largest + std::log(sum);
      EXPECT_NEAR(kernels::sum_of_exponentials(dtype, count, row.memory.data(), scale).logarithm(),
                  exact, 1e-6);
      kernels::exponentials(dtype, count, row.memory.data(), scale, exact, 1);
      expect_values(
          row, [&](std::size_t i) { return std::exp(scale * v[i] - exact); },
          dtype == DType::kFloat16 ? 1 : 1e-3);
    }
  }
}

TEST(Kernels, RowsWithInfinitiesAndNaN) {
  const auto sum_of = [](const std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    return kernels::sum_of_exponentials(DType::kFloat32, count, values.data(), 1).logarithm();
  };
  EXPECT_NEAR(sum_of({-kInfinity, 0, 0}), std::log(2.0), 1e-7);
  EXPECT_NEAR(sum_of({1000, -1000}), 1000, 0);
  EXPECT_TRUE(std::isnan(sum_of({0, kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({-kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nanf(""), 0, 5})));
  std::vector<float> row = {-kInfinity, -200, 0};
  kernels::exponentials(DType::kFloat32, 3, row.data(), 1, 0, 1);
  EXPECT_EQ(row, (std::vector<float>{0, 0, 1}));  // no subnormal numbers, which are slow
}

TEST(Kernels, RefuseWhatIsNoFloatingType) {
  std::int64_t number = 0;
  EXPECT_THROW(kernels::gelu(DType::kInt64, 1, &number, &number), InvariantError);
}

/// Every loop over `dtype`, one after the other: all that they wrote.
std::vector<std::byte> everything(DType dtype, std::int64_t count) {
  const Values x(dtype, count, 9), grad(dtype, count, 2), up(dtype, count, 3);
  std::vector<std::byte> all;
  const auto take = [&](const void* memory, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(memory);
    all.insert(all.end(), begin, begin + bytes);
  };
  const auto run = [&](const std::function<void(void*)>& kernel) {
    Values out = x;
    kernel(out.memory.data());
    take(out.memory.data(), out.memory.size());
  };
  const void* xs = x.memory.data();
  const void* gs = grad.memory.data();
  const void* us = up.memory.data();
  run([&](void* to) { kernels::gelu(dtype, count, xs, to); });
  run([&](void* to) { kernels::gelu_backward(dtype, count, gs, xs, to); });
  run([&](void* to) { kernels::swiglu(dtype, count, xs, us, to); });
  run([&](void* to) { kernels::swiglu_gate_backward(dtype, count, gs, xs, us, to); });
  const double sum = kernels::sum_of_exponentials(dtype, count, xs, 0.5).logarithm();
  take(&sum, sizeof sum);
  run([&](void* row) { kernels::exponentials(dtype, count, row, 0.5, sum, 3); });
  run([&](void* row) { kernels::softmax_backward(dtype, count, gs, row, 0.5, 0.125); });
  run([&](void* row) { kernels::cross_entropy_backward(dtype, count, row, 0, sum, 0.01); });
  return all;
}

TEST(Kernels, EveryWidthGivesTheSameBits) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t count : {1, 15, 64, 1027}) {
      const std::vector<std::byte> portable = [&] {
        const WithSimdWidth width(SimdWidth::kPortable);
        return everything(dtype, count);
      }();
      for (const SimdWidth width : simd_widths()) {
        const WithSimdWidth scope(width);
        EXPECT_TRUE(everything(dtype, count) == portable) << name_of(width) << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace shardbench::ops
