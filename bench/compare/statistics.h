#pragma once

#include <cstdint>
#include <vector>

namespace shardbench::bench {

/// What is told of a set of times. All in ns.
struct Summary {
  std::vector<std::int64_t> times;  ///< in the order in which they were measured
  double median = 0;
  double mean = 0;
  double stddev = 0;  ///< of the sample (n - 1); 0 for one
  double min = 0;
  double max = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  /// Half the width of a 95 % interval of the median, from order statistics: the narrowest
  /// symmetric pair x(k), x(n+1-k) that covers the median with at least 95 % whatever the
  /// distribution (binomial); under six samples no pair does and the whole range stands for it.
  /// Negative: one sample, no interval.
  double ci95_half = -1;
};

/// Throws InvariantError for an empty set.
Summary summarize(std::vector<std::int64_t> times);

/// Middle of the values, or the mean of the two in the middle. Throws InvariantError when empty.
double median_of(std::vector<double> values);

/// The 97.5 % point of Student's t distribution with `freedom` degrees, which need not be whole:
/// half the width of a 95 % interval in standard errors. Throws InvariantError unless above 0.
double student_t_975(double freedom);

/// A quantity that ranks may not share.
struct Spread {
  double min = 0;
  double mean = 0;
  double max = 0;

  bool differs() const { return min != max; }
  /// Largest over mean; 1 when the mean is 0 (nobody has anything).
  double imbalance() const { return mean == 0 ? 1 : max / mean; }
};

Spread spread_of(const std::vector<double>& by_rank);

/// Tokens per second of all ranks: the tokens of one step over its time.
double tokens_per_second(std::int64_t tokens_per_step, double step_ns);

}  // namespace shardbench::bench
