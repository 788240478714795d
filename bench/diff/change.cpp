#include "bench/diff/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/compare/statistics.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

/// Of how many repetitions one may be left out at either end: a fifth.
constexpr std::size_t kTrimEvery = 5;

std::vector<double> transformed(const std::vector<double>& values, Scale scale) {
  std::vector<double> out = values;
  if (scale == Scale::kDifference) return out;
  for (double& value : out) {
    SHARDBENCH_CHECK(value > 0, "a ratio of {}", value);
    value = std::log(value);
  }
  return out;
}

double back(double value, Scale scale) { return scale == Scale::kRatio ? std::exp(value) : value; }

/// A mean without the extremes, with the square of its standard error (from the winsorized
/// variance) and its degrees of freedom.
struct Trimmed {
  double mean = 0;
  double squared_error = 0;
  double freedom = 0;
};

Trimmed trimmed(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const std::size_t cut = n / kTrimEvery;
  const auto kept = static_cast<double>(n - 2 * cut);
  Trimmed out;
  for (std::size_t i = cut; i < n - cut; ++i) out.mean += values[i] / kept;
  std::vector<double> winsorized = values;
  for (double& value : winsorized) value = std::clamp(value, values[cut], values[n - 1 - cut]);
  double mean = 0;
  for (double value : winsorized) mean += value / static_cast<double>(n);
  double squares = 0;
  for (double value : winsorized) squares += (value - mean) * (value - mean);
  out.squared_error = squares / (kept * (kept - 1));
  out.freedom = kept - 1;
  return out;
}

/// The change that a difference `delta` on the scale means, with `half` the width of its interval.
void set_change(Change& change, double delta, double half, Scale scale) {
  if (scale == Scale::kRatio) {
    change.change = std::expm1(delta);
    change.low = std::expm1(delta - half);
    change.high = std::expm1(delta + half);
    return;
  }
  const double old_size = std::abs(change.old_value);
  const auto over_old = [&](double value) {
    if (old_size > 0) return value / old_size;
    return value == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), value);
  };
  change.change = over_old(delta);
  change.low = over_old(delta - half);
  change.high = over_old(delta + half);
}

std::size_t steps_of(const Groups& groups) {
  std::size_t steps = 0;
  for (const std::vector<double>& group : groups) steps += group.size();
  return steps;
}

Change too_few(const Groups& old_groups, const Groups& new_groups) {
  const bool old_is_less = steps_of(old_groups) <= steps_of(new_groups);
  const Groups& less = old_is_less ? old_groups : new_groups;
  Change change;
  change.missing = fmt::format("{} repetition{} of {} steps", less.size(),
                               less.size() == 1 ? "" : "s", steps_of(less) / less.size());
  return change;
}

}  // namespace

std::vector<double> independent_values(const Groups& groups, bool by_repetition) {
  std::vector<double> values;
  for (const std::vector<double>& group : groups) {
    SHARDBENCH_CHECK(!group.empty(), "a repetition without steps");
    const std::size_t blocks = by_repetition ? 1 : group.size() / kBlockSteps;
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto begin = group.begin() + static_cast<std::ptrdiff_t>(group.size() * b / blocks);
      const auto end = group.begin() + static_cast<std::ptrdiff_t>(group.size() * (b + 1) / blocks);
      values.push_back(median_of({begin, end}));
    }
  }
  if (values.size() < (by_repetition ? kFewestRepetitions : kFewestBlocks)) values.clear();
  return values;
}

Change change_of(const Groups& old_groups, const Groups& new_groups, Scale scale) {
  SHARDBENCH_CHECK(!old_groups.empty() && !new_groups.empty(), "no repetitions");
  const bool by_repetition = std::min(old_groups.size(), new_groups.size()) >= kFewestRepetitions;
  const std::vector<double> before = independent_values(old_groups, by_repetition);
  const std::vector<double> after = independent_values(new_groups, by_repetition);
  if (before.empty() || after.empty()) return too_few(old_groups, new_groups);
  const Trimmed a = trimmed(transformed(before, scale));
  const Trimmed b = trimmed(transformed(after, scale));
  Change change;
  change.enough = true;
  change.unit = by_repetition ? "repetition" : "block";
  change.old_value = back(a.mean, scale);
  change.new_value = back(b.mean, scale);
  const double squared = a.squared_error + b.squared_error;
  double half = 0;
  if (squared > 0) {
    const double freedom = squared * squared /
                           (a.squared_error * a.squared_error / a.freedom +
                            b.squared_error * b.squared_error / b.freedom);
    half = student_t_975(freedom) * std::sqrt(squared);
  }
  set_change(change, b.mean - a.mean, half, scale);
  return change;
}

Change paired_change_of(const Groups& old_groups, const Groups& new_groups, Scale scale) {
  if (old_groups.size() != new_groups.size() || old_groups.size() < kFewestRepetitions) {
    return change_of(old_groups, new_groups, scale);
  }
  const std::vector<double> before = transformed(independent_values(old_groups, true), scale);
  const std::vector<double> after = transformed(independent_values(new_groups, true), scale);
  std::vector<double> differences;
  for (std::size_t i = 0; i < before.size(); ++i) differences.push_back(after[i] - before[i]);
  const Trimmed t = trimmed(differences);
  Change change;
  change.enough = true;
  change.unit = "pair of repetitions";
  // The new value is the old one moved by the mean difference, so that both fit the change.
  const double base = trimmed(before).mean;
  change.old_value = back(base, scale);
  change.new_value = back(base + t.mean, scale);
  const double half =
      t.squared_error > 0 ? student_t_975(t.freedom) * std::sqrt(t.squared_error) : 0;
  set_change(change, t.mean, half, scale);
  return change;
}

}  // namespace shardbench::bench
