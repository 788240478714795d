#include "common/sharding/layout.h"

#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

std::vector<std::int64_t> sizes(std::int64_t count, int world_size, std::int64_t multiple = 1) {
  std::vector<std::int64_t> result;
  for (int rank = 0; rank < world_size; ++rank) {
    result.push_back(slice_of(count, world_size, rank, multiple).size());
  }
  return result;
}

TEST(SliceOf, KnownShares) {
  EXPECT_EQ(sizes(18, 8), (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, 0, 0}));
  EXPECT_EQ(sizes(5, 4), (std::vector<std::int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(sizes(1, 4), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(sizes(0, 3), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(sizes(100, 4, 16), (std::vector<std::int64_t>{32, 32, 32, 4}));
}

TEST(SliceOf, CoversWithoutOverlapAndStartsOnMultiples) {
  for (const std::int64_t multiple : {1, 2, 16}) {
    for (int world_size = 1; world_size <= 9; ++world_size) {
      for (std::int64_t count = 0; count <= 70; ++count) {
        std::int64_t next = 0;
        for (int rank = 0; rank < world_size; ++rank) {
          const Range range = slice_of(count, world_size, rank, multiple);
          ASSERT_EQ(range.begin, next) << count << " over " << world_size;
          ASSERT_LE(range.begin, range.end);
          ASSERT_TRUE(range.begin % multiple == 0 || range.size() == 0);
          next = range.end;
        }
        ASSERT_EQ(next, count) << count << " over " << world_size;
      }
    }
  }
}

TEST(SliceOf, RefusesRanksOutsideTheWorld) {
  EXPECT_THROW(slice_of(4, 2, 2), InvariantError);
  EXPECT_THROW(slice_of(4, 0, 0), InvariantError);
  EXPECT_THROW(slice_of(4, 2, -1), InvariantError);
}

TEST(ShardLayout, CountsAndExtents) {
  const ShardLayout layout({{{0, 16, 4}, {16, 40, 3}}, {}, {{2, 0, 5}}});
  EXPECT_EQ(layout.world_size(), 3);
  EXPECT_EQ(layout.count(0), 7);
  EXPECT_EQ(layout.count(1), 0);
  EXPECT_EQ(layout.count(2), 5);
  EXPECT_EQ(layout.total(), 12);
  EXPECT_EQ(layout.full_extent(), 43);
  EXPECT_EQ(layout.shard_extent(0), 19);
  EXPECT_EQ(layout.shard_extent(1), 0);
  EXPECT_EQ(layout.shard_extent(2), 7);
}

TEST(ShardLayout, EvenFollowsSliceOf) {
  for (const int world_size : world_sizes()) {
    for (const std::int64_t count : {0, 1, 5, 18, 100}) {
      const ShardLayout layout = ShardLayout::even(count, world_size, 16);
      EXPECT_EQ(layout.total(), count);
      for (int rank = 0; rank < world_size; ++rank) {
        const Range range = slice_of(count, world_size, rank, 16);
        ASSERT_EQ(layout.count(rank), range.size());
        if (range.size() > 0) {
          EXPECT_EQ(layout.segments(rank), (std::vector<Segment>{{0, range.begin, range.size()}}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardbench::sharding
