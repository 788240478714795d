#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace shardbench::testing {

/// |a - b| / |b| over all elements, in fp64; |a| where b is zero. NaN stays NaN.
inline double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor da = a.detach().to(at::kDouble);
  const at::Tensor db = b.detach().to(at::kDouble);
  const double norm = db.norm().item<double>();
  return (da - db).norm().item<double>() / (norm == 0 ? 1 : norm);
}

inline ::testing::AssertionResult close_to(const at::Tensor& a, const at::Tensor& b,
                                           double tolerance) {
  if (!a.defined() || !b.defined()) return ::testing::AssertionFailure() << "undefined tensor";
  if (a.sizes() != b.sizes()) {
    return ::testing::AssertionFailure() << "sizes " << a.sizes() << " and " << b.sizes();
  }
  const double distance = relative_distance(a, b);
  if (distance <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "relative distance " << distance;
}

/// Central differences of the scalar function `f` at fp64 `x`, element by element.
inline at::Tensor numeric_gradient(const std::function<double(const at::Tensor&)>& f,
                                   const at::Tensor& x, double h = 1e-5) {
  at::Tensor point = x.detach().clone().contiguous();
  at::Tensor gradient = at::zeros_like(point);
  double* value = point.mutable_data_ptr<double>();
  double* out = gradient.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < point.numel(); ++i) {
    const double kept = value[i];
    value[i] = kept + h;
    const double above = f(point);
    value[i] = kept - h;
    const double below = f(point);
    value[i] = kept;
    out[i] = (above - below) / (2 * h);
  }
  return gradient;
}

/// sum(a * b): turns an output into a scalar whose gradient is b.
inline double weighted_sum(const at::Tensor& a, const at::Tensor& b) {
  return a.mul(b).sum().item<double>();
}

inline at::Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::TensorOptions().dtype(type));
}
inline at::Tensor random_indices(std::int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, at::TensorOptions().dtype(at::kLong));
}

/// A gradient target as a strategy hands it out: a piece of a larger flat buffer, full of NaN.
inline at::Tensor undefined_target(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  std::int64_t numel = 1;
  for (std::int64_t s : sizes) numel *= s;
  const at::Tensor flat =
      at::full({numel + 32}, std::numeric_limits<double>::quiet_NaN(), at::dtype(type));
  return flat.narrow(0, 16, numel).view(sizes);
}

}  // namespace shardbench::testing
