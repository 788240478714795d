// Calls on memory that peers do not reach: chunks through lanes.
#include "common/comm/shm/stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/memory/tracker.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

std::vector<Segment> next_of(SegmentCursor& cursor, std::int64_t elements) {
  std::vector<Segment> parts;
  cursor.next(elements, [&](const Segment& part) { parts.push_back(part); });
  return parts;
}

TEST(SegmentCursor, CutsSegmentsWhereverAChunkEnds) {
  const std::vector<Segment> segments = {
      {0, 5, 0}, {10, 100, 7}, {3, 0, 0}, {40, 200, 5}, {9, 9, 0}};
  SegmentCursor cursor(segments);
  EXPECT_EQ(next_of(cursor, 3), (std::vector<Segment>{{10, 100, 3}}));
  EXPECT_EQ(next_of(cursor, 6), (std::vector<Segment>{{13, 103, 4}, {40, 200, 2}}));
  EXPECT_FALSE(cursor.done());
  EXPECT_EQ(next_of(cursor, 100), (std::vector<Segment>{{42, 202, 3}}));
  EXPECT_TRUE(cursor.done());
  EXPECT_TRUE(next_of(cursor, 1).empty());
}

TEST(SegmentCursor, OfNothingIsDone) {
  EXPECT_TRUE(SegmentCursor().done());
  const std::vector<Segment> empty = {{1, 2, 0}};
  EXPECT_TRUE(SegmentCursor(empty).done());
}

/// Most bytes of communication buffers that a rank of `world_size` had while it gathered and
/// reduced `count` elements on memory of its own.
std::int64_t most_buffer_bytes(int world_size, std::int64_t count) {
  testing::RankOptions options;
  options.mode = testing::RankMode::kForked;
  const JobOutcome outcome = testing::outcome_of(
      world_size,
      [&](testing::Rank& rank) -> std::string {
        memory::tracker().reset_peak();
        const ShardLayout layout = ShardLayout::even(count, world_size);
        std::vector<float> full(static_cast<std::size_t>(count), 1);
        std::vector<float> shard(static_cast<std::size_t>(layout.shard_extent(rank.rank)));
        const Buffer part{shard.data(), layout.shard_extent(rank.rank), DType::kFloat32};
        const Buffer all{full.data(), count, DType::kFloat32};
        const CallTag tag{"large", Phase::kBackward};
        rank.comm.reduce_scatter(layout, all, part, ReduceOp::kSum, false, tag).wait_released();
        rank.comm.all_gather(layout, part, all, tag).wait_released();
        rank.comm.all_reduce(all, ReduceOp::kSum, tag).wait_released();
        if (full[0] != static_cast<float>(world_size * world_size)) return "-1";
        const auto peaks = memory::tracker().peak_by_category();
        return std::to_string(peaks[static_cast<std::size_t>(memory::Category::kCommBuffer)]);
      },
      options);
  EXPECT_TRUE(outcome.ok);
  return std::stoll(outcome.results.at(0));
}

TEST(Stream, BuffersDoNotGrowWithTheMessage) {
  constexpr std::int64_t kRings = 4 << 20;
  EXPECT_EQ(most_buffer_bytes(2, 3 << 20), kRings);
  EXPECT_EQ(most_buffer_bytes(2, 12 << 20), kRings);
  EXPECT_LE(most_buffer_bytes(3, 3 << 20), kRings);
  EXPECT_EQ(most_buffer_bytes(8, 3 << 20), kRings);
}

TEST(Stream, SmallMessagesNeedNoRings) { EXPECT_EQ(most_buffer_bytes(2, 1000), 4000); }

}  // namespace
}  // namespace shardbench::comm
