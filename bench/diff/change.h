#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shardbench::bench {

/// Measured values of one quantity: one group per repetition (fresh ranks each), in the order in
/// which they were measured. Values in a group are those of its steps.
using Groups = std::vector<std::vector<double>>;

/// Below these an interval would claim more than was measured.
inline constexpr std::size_t kFewestRepetitions = 3;
inline constexpr std::size_t kBlockSteps = 5;
inline constexpr std::size_t kFewestBlocks = 4;

enum class Scale {
  kRatio,       ///< values above 0, compared by their quotient (times)
  kDifference,  ///< values that may be 0
};

/// How two sets of values differ. Everything but `enough` is meaningless unless that is set.
struct Change {
  bool enough = false;
  std::string missing;  ///< when not enough: what there is and what would do
  std::string unit;     ///< what was resampled: "repetition", "pair of repetitions", "block"
  double old_value = 0;
  double new_value = 0;
  double change = 0;  ///< (new - old) / |old|; 0 when both are 0, infinite when only old is
  double low = 0;     ///< 95 % interval of the change
  double high = 0;

  /// Whether the interval leaves 0 out.
  bool significant() const { return enough && (low > 0 || high < 0); }
};

/// What stands for a set of groups: one value per repetition (the median of its steps) where there
/// are at least `kFewestRepetitions`; otherwise one per block of at least `kBlockSteps` successive
/// steps. Steps that follow each other are not independent, so a step never counts by itself.
/// Empty when not even `kFewestBlocks` blocks can be made.
std::vector<double> independent_values(const Groups& groups, bool by_repetition);

/// Change from `old_groups` to `new_groups` with a 95 % interval: Yuen's test (Biometrika 61, 1974)
/// on one value per repetition, that is Welch's test on means that leave out a fifth at either end,
/// so that one repetition that somebody else's work hit does not decide. On logarithms for ratios.
/// `old_value` and `new_value` are those trimmed means (geometric for ratios).
/// Empty groups, or a value at or below 0 on the ratio scale: InvariantError.
Change change_of(const Groups& old_groups, const Groups& new_groups, Scale scale);

/// The same where repetition i of both was measured at nearly the same time (round robin in one
/// invocation): the trimmed mean of the pairwise differences, so that what slows both is no
/// difference. As many groups on both sides; otherwise, or with few, it is change_of.
Change paired_change_of(const Groups& old_groups, const Groups& new_groups, Scale scale);

}  // namespace shardbench::bench
