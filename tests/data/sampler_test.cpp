#include "common/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "common/core/error.h"
#include "common/data/synthetic.h"

namespace shardbench::data {
namespace {

/// `windows` windows; window i of length 1 is token i with target i + 1.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(std::int64_t windows) : windows_(windows) {}
  std::string describe() const override { return "counting"; }
  std::int64_t vocab() const override { return windows_ + 1; }
  std::int64_t windows(Split, std::int64_t) const override { return windows_; }
  void read(Split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
            std::int64_t* targets) const override {
    std::fill(tokens, tokens + seq, index);
    std::fill(targets, targets + seq, index + 1);
  }
  void require_windows(std::int64_t, bool) const override {}

 private:
  std::int64_t windows_;
};

std::vector<std::int64_t> order(std::int64_t count, std::uint64_t key) {
  const Permutation permutation(count, key);
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(permutation(i));
  return result;
}

std::vector<std::int64_t> first_numbers(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

TEST(Permutation, OneToOneForEverySize) {
  for (std::int64_t count = 1; count <= 130; ++count) {
    for (const std::uint64_t key : {0ull, 1ull, 0xDEADBEEFull}) {
      std::vector<std::int64_t> sorted = order(count, key);
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(sorted, first_numbers(count));
    }
  }
}

TEST(Permutation, DependsOnTheKeyAndMixes) {
  EXPECT_EQ(order(1000, 5), order(1000, 5));
  EXPECT_NE(order(1000, 5), order(1000, 6));
  // Neighbours part: the mean distance of a random permutation is count / 3.
  const std::vector<std::int64_t> shuffled = order(1000, 5);
  double distance = 0;
  int fixed = 0;
  for (std::size_t i = 0; i + 1 < shuffled.size(); ++i) {
    distance += static_cast<double>(std::abs(shuffled[i + 1] - shuffled[i]));
    fixed += shuffled[i] == static_cast<std::int64_t>(i) ? 1 : 0;
  }
  EXPECT_NEAR(distance / 999, 1000.0 / 3, 40);
  EXPECT_LT(fixed, 10);
}

TEST(Permutation, LargeRangesNeedNoMemory) {
  const std::int64_t count = (std::int64_t{1} << 40) + 7;
  const Permutation permutation(count, 3);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t value = permutation(count - 1 - i);
    EXPECT_GE(value, 0);
    EXPECT_LT(value, count);
    EXPECT_TRUE(seen.insert(value).second);
  }
  EXPECT_THROW(permutation(count), InvariantError);
  EXPECT_THROW(permutation(-1), InvariantError);
}

TEST(Sampler, UnionOverRanksIsTheGlobalBatchForEveryWorldSize) {
  const CountingSource source(1000);
  std::vector<std::vector<std::int64_t>> steps;
  for (const int world_size : {1, 2, 3, 4, 6, 12}) {
    const BatchShape shape{world_size, 12 / world_size, 2, 1};
    const Sampler sampler(source, 9, shape);
    std::vector<std::int64_t> all;
    for (std::int64_t step = 0; step < 3; ++step) {
      for (int micro = 0; micro < 2; ++micro) {
        for (int rank = 0; rank < world_size; ++rank) {
          std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape.batch));
          std::vector<std::int64_t> targets(tokens.size());
          sampler.fill(step, micro, rank, tokens.data(), targets.data());
          for (std::size_t row = 0; row < tokens.size(); ++row) {
            EXPECT_EQ(targets[row], tokens[row] + 1);
            EXPECT_EQ(tokens[row], sampler.window_of(sampler.sample_index(
                                       step, micro, rank, static_cast<std::int64_t>(row))));
          }
          all.insert(all.end(), tokens.begin(), tokens.end());
        }
      }
    }
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());  // ranks read disjoint samples
    steps.push_back(all);
  }
  for (const auto& all : steps) EXPECT_EQ(all, steps[0]);
}

TEST(Sampler, SampleNumbersAreStepMajorWithoutGaps) {
  const CountingSource source(5);
  const BatchShape shape{3, 2, 2, 1};
  EXPECT_EQ(shape.global_batch(), 12);
  const Sampler sampler(source, 1, shape);
  std::int64_t next = 0;
  for (std::int64_t step = 0; step < 4; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      for (int rank = 0; rank < 3; ++rank) {
        for (std::int64_t row = 0; row < 2; ++row) {
          EXPECT_EQ(sampler.sample_index(step, micro, rank, row), next++);
        }
      }
    }
  }
  EXPECT_THROW(sampler.sample_index(0, 2, 0, 0), InvariantError);
  EXPECT_THROW(sampler.sample_index(0, 0, 3, 0), InvariantError);
  EXPECT_THROW(sampler.sample_index(0, 0, 0, 2), InvariantError);
}

TEST(Sampler, EpochsDifferInOrderAndHoldTheSameSet) {
  for (const std::int64_t windows : {10, 37, 100}) {
    const CountingSource source(windows);
    for (const int world_size : {1, 2, 4}) {  // the order is of seed and epoch only
      const Sampler sampler(source, 4, {world_size, 1, 1, 1});
      std::vector<std::vector<std::int64_t>> epochs(3);
      for (std::int64_t sample = 0; sample < 3 * windows; ++sample) {
        EXPECT_EQ(sampler.epoch_of(sample), sample / windows);
        epochs[static_cast<std::size_t>(sample / windows)].push_back(sampler.window_of(sample));
      }
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
      for (std::size_t epoch = 0; epoch < 3; ++epoch) {
        const Sampler again(source, 4, {1, 7, 3, 1});
        EXPECT_EQ(again.window_of(static_cast<std::int64_t>(epoch) * windows), epochs[epoch][0]);
        std::sort(epochs[epoch].begin(), epochs[epoch].end());
        EXPECT_EQ(epochs[epoch], first_numbers(windows));
      }
    }
  }
}

TEST(Sampler, AnotherSeedGivesAnotherOrder) {
  const CountingSource source(100);
  const Sampler one(source, 1, {1, 1, 1, 1});
  const Sampler two(source, 2, {1, 1, 1, 1});
  int same = 0;
  for (std::int64_t i = 0; i < 100; ++i) same += one.window_of(i) == two.window_of(i) ? 1 : 0;
  EXPECT_LT(same, 10);
}

TEST(EvaluationPlan, EveryWindowOnceForEveryWorldSize) {
  for (const std::int64_t windows : {1, 9, 10, 37}) {
    const CountingSource source(windows);
    for (const int world_size : {1, 2, 3, 4, 5, 7, 8}) {
      for (const std::int64_t batch : {1, 3}) {
        const EvaluationPlan plan(source, {world_size, batch, 1, 1});
        std::vector<std::int64_t> seen;
        for (std::int64_t round = 0; round < plan.rounds(); ++round) {
          for (int rank = 0; rank < world_size; ++rank) {
            std::vector<std::int64_t> tokens(static_cast<std::size_t>(batch));
            std::vector<std::int64_t> targets(tokens.size());
            const std::int64_t rows = plan.fill(round, rank, tokens.data(), targets.data());
            ASSERT_LE(rows, batch);
            EXPECT_EQ(rows, plan.rows(round, rank).size());
            seen.insert(seen.end(), tokens.begin(), tokens.begin() + rows);
          }
        }
        EXPECT_EQ(seen, first_numbers(windows));  // in order, none twice, none left out
      }
    }
  }
}

TEST(EvaluationPlan, TenSamplesAddUpToFortyFive) {
  const CountingSource source(10);
  for (const int world_size : {1, 2, 3, 4}) {
    const EvaluationPlan plan(source, {world_size, 1, 1, 1});
    std::int64_t sum = 0;
    for (std::int64_t round = 0; round < plan.rounds(); ++round) {
      for (int rank = 0; rank < world_size; ++rank) {
        std::int64_t token = 0;
        std::int64_t target = 0;
        if (plan.fill(round, rank, &token, &target) > 0) sum += token;
      }
    }
    EXPECT_EQ(sum, 45);
  }
}

TEST(EvaluationPlan, LimitAndLastRound) {
  const CountingSource source(10);
  EXPECT_EQ(EvaluationPlan(source, {2, 2, 1, 1}, 7).windows(), 7);
  EXPECT_EQ(EvaluationPlan(source, {2, 2, 1, 1}, 99).windows(), 10);
  const EvaluationPlan plan(source, {4, 2, 1, 1}, 9);
  EXPECT_EQ(plan.rounds(), 2);
  EXPECT_EQ(plan.rows(1, 0), (sharding::Range{8, 9}));
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(plan.rows(1, rank).size(), 0);
  EXPECT_THROW(plan.rows(2, 0), InvariantError);
}

}  // namespace
}  // namespace shardbench::data
