// Guarded peers: memory of another rank cannot be touched outside the counted copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "common/comm/shm/segment_job.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using ::testing::HasSubstr;
using testing::Rank;
using testing::RankMode;

/// Rank 1 reads rank 0's memory behind the library's back, after an ordinary call.
JobOutcome read_uncounted(bool guarded) {
  testing::RankOptions options;
  options.mode = RankMode::kForked;
  options.guard_peers = guarded;
  return testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        signal(SIGSEGV, SIG_DFL);
        TestBuffer data(rank.comm, true, DType::kFloat32, 100);
        for (int i = 0; i < 100; ++i) data.set(i, 1);
        rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"sum", Phase::kInit}).wait();
        if (data.get(99) != 2) return "wrong sum";
        std::string read = "not mine";
        if (rank.rank == 1) {
          const volatile std::byte* peer = as_segment_job(rank.job)->segment().arena(0);
          read = std::to_string(static_cast<int>(peer[64]));
        }
        rank.comm.barrier({"end", Phase::kInit}).wait();
        return read;
      },
      options);
}

TEST(Guard, UncountedReadFaults) {
  const JobOutcome outcome = read_uncounted(true);
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->reason, AbortRecord::Reason::kLost);
  EXPECT_THAT(outcome.failure->message, HasSubstr("signal 11"));
}

TEST(Guard, OffItIsOrdinaryMemory) {
#ifdef SHARDBENCH_GUARD_PEERS
  GTEST_SKIP() << "this build guards always";
#endif
  const JobOutcome outcome = read_uncounted(false);
  EXPECT_TRUE(outcome.ok);
}

TEST(Guard, EveryCollectiveWorks) {
  testing::RankOptions options;
  options.mode = RankMode::kForked;
  options.guard_peers = true;
  testing::run_ranks(
      3,
      [](Rank& rank) {
        for (const bool symmetric : {true, false}) {
          for (const sharding::ShardLayout& layout : test_layouts(3)) {
            TestBuffer full(rank.comm, symmetric, DType::kFloat32, layout.full_extent());
            TestBuffer shard(rank.comm, symmetric, DType::kFloat32, layout.shard_extent(rank.rank));
            for (std::int64_t i = 0; i < layout.full_extent(); ++i) full.set(i, 1);
            rank.comm
                .reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kSum, false,
                                {"rs", Phase::kBackward})
                .wait_released();
            rank.comm.all_gather(layout, shard.buffer(), full.buffer(), {"ag", Phase::kForward})
                .wait_released();
            for (int peer = 0; peer < 3; ++peer) {
              for (const sharding::Segment& s : layout.segments(peer)) {
                for (std::int64_t i = 0; i < s.count; ++i) {
                  ASSERT_EQ(full.get(s.full_offset + i), 3);
                }
              }
            }
            rank.comm.broadcast(layout, 1, shard.buffer(), full.buffer(), {"b", Phase::kForward})
                .wait_released();
            rank.comm
                .reduce(layout, 2, full.buffer(), shard.buffer(), ReduceOp::kMax, false,
                        {"r", Phase::kBackward})
                .wait_released();
          }
        }
      },
      options);
}

}  // namespace
}  // namespace shardbench::comm
