#include "bench/compare/statistics.h"

#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

TEST(Summarize, KnownSet) {
  const Summary s = summarize({40, 10, 30, 20});
  EXPECT_EQ(s.median, 25);
  EXPECT_EQ(s.p50, 25);
  EXPECT_EQ(s.mean, 25);
  EXPECT_NEAR(s.stddev, 12.909944, 1e-6);
  EXPECT_EQ(s.min, 10);
  EXPECT_EQ(s.max, 40);
  EXPECT_NEAR(s.p95, 38.5, 1e-9);
  EXPECT_EQ(s.times, (std::vector<std::int64_t>{40, 10, 30, 20}));
}

TEST(Summarize, OneSampleHasNoInterval) {
  const Summary s = summarize({7});
  EXPECT_EQ(s.median, 7);
  EXPECT_EQ(s.stddev, 0);
  EXPECT_LT(s.ci95_half, 0);
}

TEST(Summarize, EmptyIsRefused) { EXPECT_THROW(summarize({}), InvariantError); }

std::vector<std::int64_t> first_numbers(int n) {
  std::vector<std::int64_t> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

// Places from published tables of the sign test: n = 6, 8 -> x(1), x(n); n = 9, 10, 11 -> x(2);
// n = 15 -> x(4); n = 20 -> x(6); n = 100 -> x(40).
TEST(Summarize, IntervalOfTheMedianByOrderStatistics) {
  const auto half = [](int n) { return summarize(first_numbers(n)).ci95_half; };
  EXPECT_EQ(half(2), (2 - 1) / 2.0);
  EXPECT_EQ(half(5), (5 - 1) / 2.0);
  EXPECT_EQ(half(6), (6 - 1) / 2.0);
  EXPECT_EQ(half(8), (8 - 1) / 2.0);
  EXPECT_EQ(half(9), (8 - 2) / 2.0);
  EXPECT_EQ(half(10), (9 - 2) / 2.0);
  EXPECT_EQ(half(15), (12 - 4) / 2.0);
  EXPECT_EQ(half(20), (15 - 6) / 2.0);
  EXPECT_EQ(half(100), (61 - 40) / 2.0);
}

TEST(Summarize, IntervalIsZeroForEqualTimesAndIgnoresOneOutlier) {
  EXPECT_EQ(summarize(std::vector<std::int64_t>(10, 5)).ci95_half, 0);
  std::vector<std::int64_t> times(20, 100);
  times[3] = 100'000;
  const Summary s = summarize(times);
  EXPECT_EQ(s.median, 100);
  EXPECT_EQ(s.ci95_half, 0);
}

TEST(Summarize, ManySamplesStayFinite) {
  const Summary s = summarize(first_numbers(5000));
  EXPECT_EQ(s.median, 2500.5);
  // Normal approximation: 1.96 * sqrt(n) / 2 places on either side.
  EXPECT_NEAR(s.ci95_half, 0.98 * 70.71, 1.5);
}

// From the usual table of Student's t; 1 degree is the Cauchy distribution: tan(0.475 pi).
TEST(StudentT, TableValues) {
  EXPECT_NEAR(student_t_975(1), 12.706205, 1e-5);
  EXPECT_NEAR(student_t_975(2), 4.302653, 1e-6);
  EXPECT_NEAR(student_t_975(3), 3.182446, 1e-6);
  EXPECT_NEAR(student_t_975(9), 2.262157, 1e-6);
  EXPECT_NEAR(student_t_975(30), 2.042272, 1e-6);
  EXPECT_NEAR(student_t_975(1e12), 1.959964, 1e-4);
  EXPECT_GT(student_t_975(2.5), student_t_975(3));
  EXPECT_LT(student_t_975(2.5), student_t_975(2));
  EXPECT_THROW(student_t_975(0), InvariantError);
}

TEST(MedianOf, OddAndEven) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1}), 2.5);
  EXPECT_THROW(median_of({}), InvariantError);
}

TEST(SpreadOf, MinMeanMaxAndImbalance) {
  const Spread s = spread_of({1, 2, 6});
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.mean, 3);
  EXPECT_EQ(s.max, 6);
  EXPECT_TRUE(s.differs());
  EXPECT_EQ(s.imbalance(), 2);
  EXPECT_FALSE(spread_of({4, 4}).differs());
  EXPECT_EQ(spread_of({0, 0}).imbalance(), 1);
}

// Four ranks, batch 2, length 8, 100 ms: 640 tokens per second of all ranks.
TEST(TokensPerSecond, AllRanksOverOneStep) {
  EXPECT_DOUBLE_EQ(tokens_per_second(4 * 2 * 8, 100e6), 640);
  EXPECT_THROW(tokens_per_second(64, 0), InvariantError);
}

}  // namespace
}  // namespace shardbench::bench
