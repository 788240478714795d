#pragma once

#include <array>
#include <cstdint>

namespace shardbench::optim {

/// Sum of non-negative doubles without rounding: a fixed-point number as wide as the range of
/// double (Kulisch 2013). Adding is associative, so the total has the same bits however the terms
/// are spread over ranks; limbs of different ranks are added as integers.
class ExactSum {
 public:
  static constexpr int kLimbs = 68;  ///< 32 payload bits each, then a count of non-finite terms

  void add(double term);
  /// The limbs, for an integer all_reduce(sum) over ranks.
  std::int64_t* limbs() { return limbs_.data(); }
  /// The sum, rounded once; NaN if any term was not finite.
  double value() const;

 private:
  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace shardbench::optim
