// How a collective is cut into NCCL calls.
#include "common/comm/nccl/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

CallSpec spec_of(CollectiveKind kind, ShardLayout layout, int root = 0) {
  CallSpec spec;
  spec.kind = kind;
  spec.dtype = DType::kFloat32;
  spec.root = root;
  spec.layout = std::move(layout);
  return spec;
}

NcclPlan gather(const ShardLayout& layout, int rank = 0) {
  return plan_of(spec_of(CollectiveKind::kAllGather, layout), rank);
}

TEST(NcclPlan, NeighboursAreJoinedAndEmptySegmentsLeftOut) {
  const NcclPlan plan = gather(ShardLayout({{{0, 4, 3}, {3, 7, 2}, {9, 30, 0}, {6, 12, 1}}, {}}));
  EXPECT_THAT(plan.pieces, ElementsAre(NcclPiece{0, 0, 4, 5}, NcclPiece{0, 6, 12, 1}));
  EXPECT_FALSE(plan.even);
  EXPECT_EQ(plan.own_count, 6);
}

TEST(NcclPlan, NeighboursInOneBufferOnlyStayApart) {
  EXPECT_THAT(gather(ShardLayout({{{0, 0, 2}, {2, 3, 1}}})).pieces,
              ElementsAre(NcclPiece{0, 0, 0, 2}, NcclPiece{0, 2, 3, 1}));
  EXPECT_THAT(gather(ShardLayout({{{0, 0, 2}, {5, 2, 1}}})).pieces,
              ElementsAre(NcclPiece{0, 0, 0, 2}, NcclPiece{0, 5, 2, 1}));
}

TEST(NcclPlan, PiecesOfDifferentRanksAreNeverJoined) {
  const NcclPlan plan = gather(ShardLayout({{{0, 0, 2}}, {{2, 2, 1}}}));
  EXPECT_THAT(plan.pieces, ElementsAre(NcclPiece{0, 0, 0, 2}, NcclPiece{1, 2, 2, 1}));
}

TEST(NcclPlan, EvenNeedsEqualPartsInOrderWithoutGaps) {
  EXPECT_TRUE(gather(ShardLayout::even(12, 3)).even);
  EXPECT_TRUE(gather(ShardLayout({{{3, 5, 2}}, {{0, 7, 2}}})).even) << "wherever the shards lie";
  EXPECT_FALSE(gather(ShardLayout::even(11, 3)).even) << "uneven";
  EXPECT_FALSE(gather(ShardLayout::even(2, 3)).even) << "an empty part";
  EXPECT_FALSE(gather(ShardLayout::even(0, 3)).even) << "nothing at all";
  EXPECT_FALSE(gather(ShardLayout({{{0, 2, 2}}, {{0, 0, 2}}})).even) << "out of order";
  EXPECT_FALSE(gather(ShardLayout({{{0, 0, 2}}, {{0, 3, 2}}})).even) << "a gap";
  EXPECT_FALSE(gather(ShardLayout({{{0, 0, 1}, {1, 4, 1}}, {}})).even) << "two pieces of one rank";
}

TEST(NcclPlan, ExtentsSayWhatEachRankBringsAndGets) {
  const ShardLayout layout({{{1, 0, 4}}, {{0, 6, 2}}});
  NcclPlan plan = gather(layout, 1);
  EXPECT_EQ(plan.source_extent, 2);
  EXPECT_EQ(plan.target_extent, 8);
  plan = plan_of(spec_of(CollectiveKind::kReduceScatter, layout), 0);
  EXPECT_EQ(plan.source_extent, 8);
  EXPECT_EQ(plan.target_extent, 5);
  EXPECT_EQ(plan.own_count, 4);
  for (int rank = 0; rank < 2; ++rank) {
    plan = plan_of(spec_of(CollectiveKind::kBroadcast, layout, 1), rank);
    EXPECT_THAT(plan.pieces, ElementsAre(NcclPiece{1, 0, 6, 2}));
    EXPECT_EQ(plan.source_extent, rank == 1 ? 2 : 0);
    EXPECT_EQ(plan.target_extent, 8);
    plan = plan_of(spec_of(CollectiveKind::kReduce, layout, 0), rank);
    EXPECT_EQ(plan.source_extent, 8);
    EXPECT_EQ(plan.target_extent, rank == 0 ? 5 : 0);
    EXPECT_EQ(plan.own_count, rank == 0 ? 4 : 0);
  }
}

TEST(NcclPlan, ResultsAreWhereTheCallWrites) {
  const ShardLayout layout({{{1, 0, 4}}, {{0, 6, 2}}});
  const auto ranges = [&](CollectiveKind kind, int rank) {
    const CallSpec spec = spec_of(kind, layout, 1);
    return result_ranges(spec, plan_of(spec, rank), rank);
  };
  EXPECT_THAT(ranges(CollectiveKind::kAllGather, 0),
              ElementsAre(ByteRange{0, 16}, ByteRange{24, 32}));
  EXPECT_THAT(ranges(CollectiveKind::kBroadcast, 0), ElementsAre(ByteRange{24, 32}));
  EXPECT_THAT(ranges(CollectiveKind::kReduceScatter, 0), ElementsAre(ByteRange{4, 20}));
  EXPECT_THAT(ranges(CollectiveKind::kReduce, 1), ElementsAre(ByteRange{0, 8}));
  EXPECT_THAT(ranges(CollectiveKind::kReduce, 0), IsEmpty());
}

}  // namespace
}  // namespace shardbench::comm
