#include "common/optim/exact_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/modules/parameter.h"
#include "common/optim/kernels.h"
#include "common/optim/norm.h"

namespace shardbench::optim {
namespace {

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (double term : terms) sum.add(term);
  return sum.value();
}

TEST(ExactSum, SmallCases) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({0.0}), 0.0);
  EXPECT_EQ(sum_of({9.0, 16.0}), 25.0);
  EXPECT_EQ(sum_of({0.1}), 0.1);
  EXPECT_EQ(sum_of({0.5, 0.25, 0.125}), 0.875);
}

TEST(ExactSum, RangeOfDouble) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(sum_of({tiny}), tiny);
  EXPECT_EQ(sum_of({tiny, tiny, tiny}), 3 * tiny);
  const double normal = std::numeric_limits<double>::min();
  EXPECT_EQ(sum_of({normal, tiny}), normal + tiny);
  EXPECT_EQ(sum_of({1e300, 1e-300}), 1e300);
  EXPECT_EQ(sum_of({std::numeric_limits<double>::max()}), std::numeric_limits<double>::max());
}

TEST(ExactSum, LosesNothingOnTheWay) {
  // 2^53 + 1 + 1 is 2^53 + 2 exactly; adding in double, one at a time, gives 2^53.
  EXPECT_EQ(sum_of({0x1p53, 1.0, 1.0}), 0x1p53 + 2);
  std::vector<double> terms(1000, 0x1p-60);
  terms.insert(terms.begin(), 1.0);
  EXPECT_EQ(sum_of(terms), 1.0 + 1000 * 0x1p-60);
}

TEST(ExactSum, OrderAndSplitDoNotMatter) {
  std::vector<double> terms;
  double x = 1e-8;
  for (int i = 0; i < 300; ++i) terms.push_back(x *= 1.37);
  ExactSum whole, left, right;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    whole.add(terms[i]);
    (i % 3 == 0 ? left : right).add(terms[terms.size() - 1 - i]);
  }
  for (int limb = 0; limb < ExactSum::kLimbs; ++limb) left.limbs()[limb] += right.limbs()[limb];
  EXPECT_EQ(left.value(), whole.value());
  long double expected = 0;
  for (double term : terms) expected += term;
  EXPECT_NEAR(whole.value() / static_cast<double>(expected), 1.0, 1e-15);
}

TEST(ExactSum, NotFiniteShows) {
  EXPECT_TRUE(std::isnan(sum_of({1.0, std::numeric_limits<double>::infinity()})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan("")})));
}

TEST(SumOfSquares, EveryLengthEqualsTheLongWay) {
  std::vector<float> values;
  for (int i = 0; i < 70; ++i) values.push_back(static_cast<float>(i % 7) - 3);
  for (std::size_t n = 0; n <= values.size(); ++n) {
    double expected = 0;
    for (std::size_t i = 0; i < n; ++i) expected += values[i] * values[i];
    EXPECT_EQ(sum_of_squares(values.data(), static_cast<std::int64_t>(n)), expected) << n;
  }
}

TEST(ClipCoefficient, ScalesLongGradientsOnly) {
  EXPECT_EQ(clip_coefficient(5, 0), 1.0f);
  EXPECT_EQ(clip_coefficient(0.5, 1), 1.0f);
  EXPECT_NEAR(clip_coefficient(5, 1), 0.2f, 1e-6);
}

TEST(AddSquares, RowsOnDifferentRanksGiveTheSameBits) {
  Parameter parameter("w", {3, 5}, Init::constant(0));
  parameter.set_index(0);
  std::vector<float> gradient;
  for (int i = 0; i < 15; ++i) gradient.push_back(0.1f * static_cast<float>(i + 1));
  const auto piece = [&](std::int64_t begin, std::int64_t count) {
    return OwnedPiece{&parameter, begin, count, nullptr, gradient.data() + begin, 0};
  };
  ExactSum whole, parts;
  add_squares({{piece(0, 15)}, 16}, {1}, whole);
  add_squares({{piece(0, 10)}, 16}, {1}, parts);
  add_squares({{piece(10, 5)}, 16}, {1}, parts);
  EXPECT_EQ(parts.value(), whole.value());
  ExactSum unused;
  add_squares({{piece(0, 15)}, 16}, {0}, unused);
  EXPECT_EQ(unused.value(), 0.0);
}

}  // namespace
}  // namespace shardbench::optim
