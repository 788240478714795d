#include "bench/diff/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Groups one_step_each(const std::vector<double>& values) {
  Groups groups;
  for (double value : values) groups.push_back({value});
  return groups;
}

TEST(IndependentValues, OneMedianPerRepetition) {
  EXPECT_THAT(independent_values({{1, 9, 2}, {4, 5, 60, 6}, {7}}, true), ElementsAre(2, 5.5, 7));
  EXPECT_THAT(independent_values({{1, 2, 3}, {4, 5, 6}}, true), IsEmpty());
}

TEST(IndependentValues, BlocksOfAtLeastFiveSteps) {
  std::vector<double> steps;
  for (int i = 0; i < 22; ++i) steps.push_back(i);
  // 22 steps: four blocks that start at 0, 5, 11 and 16.
  EXPECT_THAT(independent_values({steps}, false), ElementsAre(2, 7.5, 13, 18.5));
  // A block never spans two repetitions: 9 steps hold one block, 11 two.
  EXPECT_THAT(
      independent_values({std::vector<double>(9, 1.0), std::vector<double>(11, 2.0)}, false),
      IsEmpty());
  EXPECT_THAT(
      independent_values({std::vector<double>(10, 1.0), std::vector<double>(11, 2.0)}, false),
      ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(independent_values({std::vector<double>(4, 1.0)}, false), IsEmpty());
}

// Welch by hand: old {9, 10, 11}, new {11, 12, 16}: means 10 and 13, variances 1 and 7,
// squared error 8/3, freedom (8/3)^2 / ((1/3)^2/2 + (7/3)^2/2) = 2.56, t = 3.5187 (between 4.3027
// at 2 and 3.1824 at 3).
TEST(ChangeOf, WelchByHand) {
  const Change change =
      change_of(one_step_each({9, 11, 10}), one_step_each({16, 11, 12}), Scale::kDifference);
  ASSERT_TRUE(change.enough);
  EXPECT_EQ(change.unit, "repetition");
  EXPECT_DOUBLE_EQ(change.old_value, 10);
  EXPECT_DOUBLE_EQ(change.new_value, 13);
  EXPECT_NEAR(change.change, 0.3, 1e-12);
  const double half = (change.high - change.low) / 2;
  EXPECT_NEAR((change.high + change.low) / 2, 0.3, 1e-12);
  EXPECT_GT(half, 3.1824 * std::sqrt(8.0 / 3) / 10);
  EXPECT_LT(half, 4.3027 * std::sqrt(8.0 / 3) / 10);
  EXPECT_FALSE(change.significant());
}

// Yuen by hand, five repetitions: the extremes go. Old 1, {2, 3, 4}, 100 -> 3, winsorized
// {2, 2, 3, 4, 4}, squares 4, squared error 4 / (3 * 2) = 2/3. New: the same plus 10. Freedom 4,
// t = 2.77645; half = 2.77645 * sqrt(4/3).
TEST(ChangeOf, OneBadRepetitionDoesNotDecide) {
  const Change change = change_of(one_step_each({3, 100, 2, 1, 4}),
                                  one_step_each({13, 12, 11, 14, 500}), Scale::kDifference);
  EXPECT_DOUBLE_EQ(change.old_value, 3);
  EXPECT_DOUBLE_EQ(change.new_value, 13);
  EXPECT_NEAR((change.high - change.low) / 2, 2.776445 * std::sqrt(4.0 / 3) / 3, 1e-5);
  EXPECT_TRUE(change.significant());
}

TEST(ChangeOf, RatiosOnLogarithms) {
  const Change change =
      change_of(one_step_each({100, 100, 100}), one_step_each({104, 105, 106}), Scale::kRatio);
  EXPECT_NEAR(change.old_value, 100, 1e-9);
  EXPECT_NEAR(change.new_value, std::cbrt(104.0 * 105 * 106), 1e-9);
  EXPECT_NEAR(change.change, change.new_value / 100 - 1, 1e-12);
  EXPECT_NEAR((1 + change.low) * (1 + change.high), (1 + change.change) * (1 + change.change),
              1e-12);
  EXPECT_GT(change.low, 0.02);
  EXPECT_TRUE(change.significant());
  EXPECT_THROW(change_of(one_step_each({0, 1, 2}), one_step_each({1, 2, 3}), Scale::kRatio),
               InvariantError);
}

TEST(ChangeOf, ExactlyEqualAndExactlyShifted) {
  const Groups same = one_step_each({5, 5, 5});
  Change change = change_of(same, same, Scale::kRatio);
  EXPECT_EQ(change.change, 0);
  EXPECT_NEAR(change.low, 0, 1e-12);
  EXPECT_NEAR(change.high, 0, 1e-12);
  EXPECT_FALSE(change.significant());
  change = change_of(same, one_step_each({4, 4, 4}), Scale::kRatio);
  EXPECT_NEAR(change.change, -0.2, 1e-12);
  EXPECT_TRUE(change.significant());
}

TEST(ChangeOf, FromZero) {
  const Groups zero = one_step_each({0, 0, 0});
  EXPECT_EQ(change_of(zero, zero, Scale::kDifference).change, 0);
  EXPECT_TRUE(std::isinf(change_of(zero, one_step_each({1, 2, 3}), Scale::kDifference).change));
}

TEST(ChangeOf, FewRepetitionsFallBackToBlocksAndFewStepsToNothing) {
  std::vector<double> steps(40, 10.0);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] += static_cast<double>(i % 7) / 100;
  const Change blocks = change_of({steps}, {steps, steps, steps}, Scale::kRatio);
  ASSERT_TRUE(blocks.enough);
  EXPECT_EQ(blocks.unit, "block");
  EXPECT_FALSE(blocks.significant());

  const Change few = change_of({std::vector<double>(10, 1.0)}, {steps}, Scale::kRatio);
  EXPECT_FALSE(few.enough);
  EXPECT_FALSE(few.significant());
  EXPECT_EQ(few.missing, "1 repetition of 10 steps");
  EXPECT_EQ(change_of({{1, 1}, {1, 1}}, {steps}, Scale::kRatio).missing,
            "2 repetitions of 2 steps");
}

// The machine is 50 % slower in the second half, for both: pairs do not see it.
TEST(PairedChangeOf, WhatSlowsBothIsNoDifference) {
  const Groups before = one_step_each({10, 10.1, 15, 15.1});
  const Groups after = one_step_each({10.5, 10.7, 15.8, 15.9});
  EXPECT_FALSE(change_of(before, after, Scale::kRatio).significant());
  const Change paired = paired_change_of(before, after, Scale::kRatio);
  EXPECT_EQ(paired.unit, "pair of repetitions");
  EXPECT_TRUE(paired.significant());
  EXPECT_NEAR(paired.change, 0.054, 0.002);
  EXPECT_NEAR(paired.new_value / paired.old_value, 1 + paired.change, 1e-12);
}

// By hand: differences 1, 2, 3: mean 2, error sqrt(1/3), freedom 2, t = 4.302653.
TEST(PairedChangeOf, ByHand) {
  const Change change = paired_change_of(one_step_each({10, 20, 30}), one_step_each({11, 22, 33}),
                                         Scale::kDifference);
  EXPECT_DOUBLE_EQ(change.old_value, 20);
  EXPECT_NEAR(change.change, 0.1, 1e-12);
  EXPECT_NEAR(change.high - change.change, 4.302653 * std::sqrt(1.0 / 3) / 20, 1e-6);
}

TEST(PairedChangeOf, OtherNumbersOfRepetitionsAreNotPaired) {
  const Change change =
      paired_change_of(one_step_each({1, 2, 3}), one_step_each({1, 2, 3, 4}), Scale::kRatio);
  EXPECT_EQ(change.unit, "repetition");
}

}  // namespace
}  // namespace shardbench::bench
