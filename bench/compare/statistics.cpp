#include "bench/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

/// Linear between the two nearest ranks. `sorted` is not empty.
double quantile(const std::vector<std::int64_t>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return static_cast<double>(sorted[below]) * (1 - part) +
         static_cast<double>(sorted[above]) * part;
}

/// How many of the smallest (and largest) samples lie outside the 95 % interval of the median:
/// the most whose binomial tail stays within 2.5 % on either side.
std::size_t outside_interval(std::size_t n) {
  double log_term = -static_cast<double>(n) * std::log(2.0);  // log of C(n, k) / 2^n at k = 0
  double tail = 0;
  for (std::size_t k = 0; k < n; ++k) {
    tail += std::exp(log_term);
    if (tail > 0.025) return k;
    log_term += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1));
  }
  return 0;
}

double interval_half_width(const std::vector<std::int64_t>& sorted) {
  const std::size_t n = sorted.size();
  if (n < 2) return -1;
  // `k` samples are below x(k), the k-th smallest, when counting starts at 0; x(k-1) is the end.
  const std::size_t k = outside_interval(n);
  const std::size_t low = k == 0 ? 0 : k - 1;
  return static_cast<double>(sorted[n - 1 - low] - sorted[low]) / 2;
}

/// The regularized incomplete beta function I_x(a, b) by its continued fraction (Abramowitz and
/// Stegun 26.5.8), which converges fast for x < (a + 1) / (a + b + 2).
double incomplete_beta(double x, double a, double b) {
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(1 - x, b, a);
  const double front = std::exp(a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) -
                                std::lgamma(a) - std::lgamma(b)) /
                       a;
  // From the far end of the fraction: enough terms for every x and every freedom that occurs.
  double fraction = 1;
  for (int m = 200; m >= 1; --m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    fraction = 1 + even / (1 + odd / fraction);
  }
  return front / (1 - (a + b) * x / (a + 1) / fraction);
}

/// P(|T| > t).
double student_t_outside(double t, double freedom) {
  return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5);
}

}  // namespace

Summary summarize(std::vector<std::int64_t> times) {
  SHARDBENCH_CHECK(!times.empty(), "no times to summarize");
  std::vector<std::int64_t> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  Summary s;
  s.median = s.p50 = quantile(sorted, 0.5);
  s.p95 = quantile(sorted, 0.95);
  s.p99 = quantile(sorted, 0.99);
  s.min = static_cast<double>(sorted.front());
  s.max = static_cast<double>(sorted.back());
  s.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  double squares = 0;
  for (std::int64_t t : sorted) {
    const double off = static_cast<double>(t) - s.mean;
    squares += off * off;
  }
  s.stddev = sorted.size() < 2 ? 0 : std::sqrt(squares / (n - 1));
  s.ci95_half = interval_half_width(sorted);
  s.times = std::move(times);
  return s;
}

double median_of(std::vector<double> values) {
  SHARDBENCH_CHECK(!values.empty(), "no values to take the median of");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double student_t_975(double freedom) {
  SHARDBENCH_CHECK(freedom > 0, "{} degrees of freedom", freedom);
  constexpr double kMostFreedom = 1e5;  // beyond, it is the normal distribution's 1.95996
  const double degrees = std::min(freedom, kMostFreedom);
  double low = 1.9;
  double high = 2;
  while (student_t_outside(high, degrees) > 0.05 && high < 1e12) high *= 2;
  for (int halving = 0; halving < 100; ++halving) {
    const double middle = (low + high) / 2;
    (student_t_outside(middle, degrees) > 0.05 ? low : high) = middle;
  }
  return (low + high) / 2;
}

Spread spread_of(const std::vector<double>& by_rank) {
  SHARDBENCH_CHECK(!by_rank.empty(), "no ranks");
  const auto [low, high] = std::minmax_element(by_rank.begin(), by_rank.end());
  const double sum = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
  return {*low, sum / static_cast<double>(by_rank.size()), *high};
}

double tokens_per_second(std::int64_t tokens_per_step, double step_ns) {
  SHARDBENCH_CHECK(step_ns > 0, "a step took {} ns", step_ns);
  return static_cast<double>(tokens_per_step) * 1e9 / step_ns;
}

}  // namespace shardbench::bench
