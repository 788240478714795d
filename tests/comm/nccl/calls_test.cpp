// Which NCCL calls a collective becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/nccl/harness.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CallTag kTag{"unit", Phase::kForward};

/// The calls that `body` makes rank 0 issue on two ranks.
std::vector<std::string> calls_of(const std::function<void(NcclRank&)>& body) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, body);
  EXPECT_EQ(gpus.calls(0), gpus.calls(1));
  return gpus.calls(0);
}

/// Gathers a layout and reduces over it.
std::vector<std::string> calls_over(const ShardLayout& layout, DType dtype, bool accumulate) {
  return calls_of([&](NcclRank& rank) {
    DeviceBuffer shard(rank, dtype, layout.shard_extent(rank.rank));
    DeviceBuffer full(rank, dtype, layout.full_extent());
    rank.comm.all_gather(layout, shard.buffer(), full.buffer(), kTag).wait();
    rank.comm
        .reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kAverage, accumulate, kTag)
        .wait();
    rank.gpus.synchronize(rank.hooks.current_stream());
  });
}

TEST(NcclCalls, EvenPartsAreOneCall) {
  for (const bool accumulate : {false, true}) {
    EXPECT_THAT(calls_over(ShardLayout::even(8, 2), DType::kFloat32, accumulate),
                ElementsAre("all_gather 4 fp32", "reduce_scatter 4 fp32 average"));
  }
}

/// A unit of three parameters, of which the second has fewer rows on the last rank and the third
/// none: a piece of each rank's shard per parameter.
TEST(NcclCalls, AUnitOfUnevenRowsIsOneGroup) {
  const ShardLayout layout({{{0, 0, 6}, {16, 16, 4}, {32, 32, 5}}, {{0, 6, 6}, {16, 20, 2}}});
  EXPECT_THAT(
      calls_over(layout, DType::kBFloat16, false),
      ElementsAre("group_start", "broadcast 6 bf16 root 0", "broadcast 4 bf16 root 0",
                  "broadcast 5 bf16 root 0", "broadcast 6 bf16 root 1", "broadcast 2 bf16 root 1",
                  "group_end", "group_start", "reduce 6 bf16 average root 0",
                  "reduce 4 bf16 average root 0", "reduce 5 bf16 average root 0",
                  "reduce 6 bf16 average root 1", "reduce 2 bf16 average root 1", "group_end"));
}

TEST(NcclCalls, RootedCallsMoveTheRootsPieces) {
  const ShardLayout layout({{{0, 0, 2}}, {{0, 2, 3}, {3, 8, 1}}});
  const auto calls = calls_of([&](NcclRank& rank) {
    DeviceBuffer shard(rank, DType::kFloat64, layout.shard_extent(rank.rank));
    DeviceBuffer full(rank, DType::kFloat64, layout.full_extent());
    rank.comm.broadcast(layout, 1, shard.buffer(), full.buffer(), kTag).wait();
    rank.comm.reduce(layout, 1, full.buffer(), shard.buffer(), ReduceOp::kMax, false, kTag).wait();
    rank.gpus.synchronize(rank.hooks.current_stream());
  });
  EXPECT_THAT(calls,
              ElementsAre("group_start", "broadcast 3 fp64 root 1", "broadcast 1 fp64 root 1",
                          "group_end", "group_start", "reduce 3 fp64 max root 1",
                          "reduce 1 fp64 max root 1", "group_end"));
}

TEST(NcclCalls, DtypesGoThroughAsTheyAre) {
  const auto calls = calls_of([](NcclRank& rank) {
    for (const DType dtype : all_dtypes()) {
      DeviceBuffer full(rank, dtype, 2);
      rank.comm.broadcast(ShardLayout::contiguous({2, 0}), 0, full.buffer(), full.buffer(), kTag)
          .wait();
    }
    rank.gpus.synchronize(rank.hooks.current_stream());
  });
  std::vector<std::string> want;
  for (const char* dtype : {"fp64", "fp32", "bf16", "fp16", "int64", "uint8"}) {
    want.insert(want.end(),
                {"group_start", std::string("broadcast 2 ") + dtype + " root 0", "group_end"});
  }
  EXPECT_EQ(calls, want);
}

TEST(NcclCalls, NothingToMoveIsNoCallAndDoneAtOnce) {
  const auto calls = calls_of([](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 0);
    const ShardLayout nothing = ShardLayout::even(0, 2);
    const Work gather = rank.comm.all_gather(nothing, data.buffer(), data.buffer(), kTag);
    const Work reduce = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    EXPECT_TRUE(gather.done());
    EXPECT_TRUE(reduce.done());
  });
  EXPECT_THAT(calls, IsEmpty());
}

TEST(NcclCalls, ABarrierIsAReductionOfOneElement) {
  EXPECT_THAT(calls_of([](NcclRank& rank) { rank.comm.barrier(kTag).wait(); }),
              ElementsAre("all_reduce 1 uint8 sum"));
}

TEST(NcclCalls, CallersMemoryIsRecordedOnTheCommunicationStream) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    const ShardLayout layout = ShardLayout::even(4, 2);
    DeviceBuffer shard(rank, DType::kFloat32, 2);
    DeviceBuffer full(rank, DType::kFloat32, 4);
    rank.comm.all_gather(layout, shard.buffer(), full.buffer(), kTag).wait();
    rank.comm.all_reduce(full.buffer(), ReduceOp::kSum, kTag).wait();
    EXPECT_EQ(rank.gpus.uses(shard.data()), 1);
    EXPECT_EQ(rank.gpus.uses(full.data()), 2);
    rank.gpus.synchronize(rank.hooks.current_stream());
  });
}

}  // namespace
}  // namespace shardbench::comm
