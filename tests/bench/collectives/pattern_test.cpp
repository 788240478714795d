// Patterns against the slow reference arithmetic of the tests of common/comm.

#include "bench/collectives/pattern.h"

#include <gtest/gtest.h>

#include "tests/comm/elements.h"

namespace shardbench::bench {
namespace {

using comm::ReduceOp;

const std::vector<DType>& dtypes() {
  static const std::vector<DType> kTypes = {DType::kFloat64, DType::kFloat32, DType::kBFloat16,
                                            DType::kFloat16, DType::kInt64};
  return kTypes;
}

std::vector<double> values_of(const Pattern& pattern, DType dtype, std::int64_t count) {
  const std::size_t element = size_of(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * element);
  pattern.fill(bytes.data(), 0, count);
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    values.push_back(comm::load_element(dtype, bytes.data() + i * element));
  }
  return values;
}

TEST(Pattern, ReductionsAreWhatTheDefinitionGives) {
  for (const DType dtype : dtypes()) {
    for (const int world_size : {1, 2, 3, 4, 7, 64}) {
      std::vector<std::vector<double>> by_rank;
      for (int rank = 0; rank < world_size; ++rank) {
        by_rank.push_back(values_of(Pattern::of_rank(dtype, world_size, rank, 5), dtype, 300));
      }
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
        if (!comm::is_defined(dtype, op)) continue;
        const std::vector<double> reduced =
            values_of(Pattern::reduced(dtype, op, world_size, 5), dtype, 300);
        for (std::size_t i = 0; i < reduced.size(); ++i) {
          std::vector<double> values;
          for (const auto& rank : by_rank) values.push_back(rank[i]);
          const double expected = comm::reference_reduce(dtype, op, values);
          ASSERT_EQ(reduced[i], comm::rounded(dtype, expected))
              << name_of(dtype) << " W=" << world_size << " element " << i;
          // Sums are exact: nothing is rounded away that would hide an error.
          if (op == ReduceOp::kSum) {
            ASSERT_EQ(reduced[i], expected);
          }
        }
      }
    }
  }
}

TEST(Pattern, ValuesDifferByRankSeedAndElement) {
  const auto a = values_of(Pattern::of_rank(DType::kFloat32, 4, 0, 1), DType::kFloat32, 50);
  EXPECT_NE(a, values_of(Pattern::of_rank(DType::kFloat32, 4, 1, 1), DType::kFloat32, 50));
  EXPECT_NE(a, values_of(Pattern::of_rank(DType::kFloat32, 4, 0, 2), DType::kFloat32, 50));
  EXPECT_NE(a[0], a[1]);
}

TEST(Pattern, FindsEveryWrongElementAtAnyOffset) {
  const std::int64_t count = 2 * kPatternPeriod + 77;
  for (const DType dtype : dtypes()) {
    const Pattern pattern = Pattern::of_rank(dtype, 2, 1, 9);
    for (const std::int64_t begin :
         {std::int64_t{0}, std::int64_t{1}, kPatternPeriod - 1, 3 * kPatternPeriod + 500}) {
      std::vector<std::byte> data(static_cast<std::size_t>(count) * size_of(dtype));
      pattern.fill(data.data(), begin, count);
      EXPECT_EQ(pattern.wrong(data.data(), begin, count), 0);
      EXPECT_EQ(pattern.wrong(data.data(), begin, 0), 0);
      EXPECT_GT(pattern.wrong(data.data(), begin + 1, count), count / 3);
      data[0] ^= std::byte{1};
      data[data.size() / 2] ^= std::byte{1};
      data.back() ^= std::byte{1};
      EXPECT_EQ(pattern.wrong(data.data(), begin, count), 3) << name_of(dtype) << ' ' << begin;
    }
  }
}

}  // namespace
}  // namespace shardbench::bench
