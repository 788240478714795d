// Ranks that do not issue the same calls are told so, by name, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;
using testing::RankMode;

class Mismatch : public ::testing::TestWithParam<RankMode> {
 protected:
  /// Runs `body` on `world_size` ranks; every rank must get a JobAborted, all the same. Returns it.
  std::string message_of(int world_size, const std::function<void(Rank&)>& body) {
    testing::RankOptions options;
    options.mode = GetParam();
    options.timeout = std::chrono::seconds(30);
    const JobOutcome outcome = testing::outcome_of(
        world_size,
        [&](Rank& rank) -> std::string {
          try {
            body(rank);
          } catch (const JobAborted& error) {
            return error.what();
          }
          return "not aborted";
        },
        options);
    EXPECT_FALSE(outcome.ok);
    if (!outcome.failure) return "";
    for (const std::string& result : outcome.results) EXPECT_EQ(result, outcome.failure->message);
    return outcome.failure->message;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         ::testing::Values(RankMode::kThreads, RankMode::kForked,
                                           RankMode::kCarried));

TEST_P(Mismatch, OrderOfLabels) {
  const std::string message = message_of(3, [](Rank& rank) {
    TestBuffer data(rank.comm, true, DType::kFloat32, 8);
    for (int i = 0; i < 8; ++i) data.set(i, 0);
    const char* first = rank.rank == 1 ? "h.1" : "h.0";
    rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {first, Phase::kBackward}).wait();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("order differs"), HasSubstr("'h.0'"), HasSubstr("'h.1'"),
                             HasSubstr("on rank 1"), HasSubstr("call #0")));
}

TEST_P(Mismatch, Kinds) {
  const std::string message = message_of(2, [](Rank& rank) {
    TestBuffer data(rank.comm, true, DType::kFloat32, 8);
    for (int i = 0; i < 8; ++i) data.set(i, 0);
    const ShardLayout layout = ShardLayout::even(8, 2);
    rank.comm.barrier({"start", Phase::kInit}).wait();
    Work work = rank.rank == 0
                    ? rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"x", Phase::kInit})
                    : rank.comm.broadcast(layout, 0, {}, data.buffer(), {"x", Phase::kInit});
    work.wait();
    rank.comm.barrier({"end", Phase::kInit}).wait();
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("all_reduce 'x'"), HasSubstr("on rank 0"), HasSubstr("broadcast 'x'"),
                    HasSubstr("on rank 1"), HasSubstr("call #1")));
}

// 10 elements on one rank and 12 on the other: both sizes and ranks are named.
TEST_P(Mismatch, Sizes) {
  const std::string message = message_of(2, [](Rank& rank) {
    const std::int64_t count = rank.rank == 0 ? 10 : 12;
    TestBuffer data(rank.comm, true, DType::kFloat32, count);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, 0);
    rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"grad", Phase::kBackward}).wait();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("10 fp32 elements, sum on rank 0"),
                             HasSubstr("12 fp32 elements, sum on rank 1")));
}

TEST_P(Mismatch, DtypesOperationsRootsLayouts) {
  EXPECT_THAT(message_of(2,
                         [](Rank& rank) {
                           const DType dtype = rank.rank == 0 ? DType::kFloat32 : DType::kBFloat16;
                           TestBuffer data(rank.comm, true, dtype, 4);
                           for (int i = 0; i < 4; ++i) data.set(i, 0);
                           rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"x"}).wait();
                         }),
              AllOf(HasSubstr("fp32"), HasSubstr("bf16")));
  EXPECT_THAT(message_of(2,
                         [](Rank& rank) {
                           TestBuffer data(rank.comm, true, DType::kFloat32, 4);
                           for (int i = 0; i < 4; ++i) data.set(i, 0);
                           const auto op = rank.rank == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
                           rank.comm.all_reduce(data.buffer(), op, {"x"}).wait();
                         }),
              AllOf(HasSubstr("sum"), HasSubstr("average")));
  EXPECT_THAT(
      message_of(
          2,
          [](Rank& rank) {
            const ShardLayout layout = ShardLayout::even(8, 2);
            TestBuffer full(rank.comm, true, DType::kFloat32, 8);
            TestBuffer shard(rank.comm, true, DType::kFloat32, 4);
            rank.comm.broadcast(layout, rank.rank, shard.buffer(), full.buffer(), {"x"}).wait();
            rank.comm.barrier({"end"}).wait();
          }),
      AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  EXPECT_THAT(
      message_of(2,
                 [](Rank& rank) {
                   const ShardLayout layout =
                       ShardLayout::contiguous(rank.rank == 0 ? std::vector<std::int64_t>{4, 4}
                                                              : std::vector<std::int64_t>{5, 3});
                   TestBuffer full(rank.comm, true, DType::kFloat32, 8);
                   TestBuffer shard(rank.comm, true, DType::kFloat32, 5);
                   rank.comm.all_gather(layout, shard.buffer(), full.buffer(), {"x"}).wait();
                 }),
      HasSubstr("another layout"));
}

}  // namespace
}  // namespace shardbench::comm
