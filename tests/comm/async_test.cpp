// Staging is given back, and times of arrival.
#include <gtest/gtest.h>

#include <thread>

#include "common/comm/shm/shm.h"
#include "common/memory/tracker.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using testing::Rank;
using testing::RankMode;

class Async : public ::testing::TestWithParam<std::tuple<RankMode, int, bool>> {
 protected:
  void run(const std::function<void(Rank&, bool)>& body) {
    const auto [mode, world_size, symmetric] = GetParam();
    testing::RankOptions options;
    options.mode = mode;
    testing::run_ranks(
        world_size, [&, is_symmetric = symmetric](Rank& rank) { body(rank, is_symmetric); },
        options);
  }
};

INSTANTIATE_TEST_SUITE_P(All, Async,
                         ::testing::Combine(::testing::Values(RankMode::kThreads, RankMode::kForked,
                                                              RankMode::kCarried),
                                            ::testing::Values(1, 2, 3, 8), ::testing::Bool()));

TEST_P(Async, StagingIsGivenBack) {
  run([](Rank& rank, bool symmetric) {
    // Ranks as threads share one tracker: figures are taken between barriers.
    TestBuffer data(rank.comm, symmetric, DType::kFloat32, 300);
    for (std::int64_t i = 0; i < 300; ++i) data.set(i, 0);
    const auto comm_bytes = [] {
      return memory::tracker().live()[static_cast<std::size_t>(memory::Category::kCommBuffer)];
    };
    rank.comm.barrier({"a", Phase::kInit}).wait();
    for (int i = 0; i < 5; ++i) {
      rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"b", Phase::kInit}).wait();
    }
    rank.comm.quiesce();
    rank.comm.barrier({"c", Phase::kInit}).wait();
    EXPECT_EQ(comm_bytes(), 0);
    rank.comm.barrier({"d", Phase::kInit}).wait();
  });
}

TEST(AsyncTimes, LastArrivalIsThatOfTheLastRank) {
  testing::run_ranks(3, [](Rank& rank) {
    const auto before = std::chrono::steady_clock::now();
    if (rank.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Work work = rank.comm.barrier({"late", Phase::kInit});
    work.wait();
    const auto arrival = work.last_arrival().time_since_epoch().count();
    EXPECT_LE(work.last_arrival(), std::chrono::steady_clock::now());
    if (rank.rank == 2) {
      EXPECT_GE(work.last_arrival(), before + std::chrono::milliseconds(30));
    }
    // The same on every rank.
    TestBuffer all(rank.comm, true, DType::kInt64, 1);
    *static_cast<std::int64_t*>(all.buffer().data) = arrival;
    rank.comm.all_reduce(all.buffer(), ReduceOp::kMax, {"compare", Phase::kInit}).wait();
    EXPECT_EQ(*static_cast<std::int64_t*>(all.buffer().data), arrival);
  });
}

// The root of a broadcast and the others of a reduce need nobody: their waits return although one
// rank has not come yet (it comes only after they have told it to).
TEST(AsyncTimes, RootedCallsWaitForNobodyInVain) {
  testing::run_ranks(2, [](Rank& rank) {
    const ShardLayout layout = ShardLayout::contiguous({4, 4});
    TestBuffer full(rank.comm, true, DType::kFloat32, 8);
    TestBuffer shard(rank.comm, true, DType::kFloat32, 4);
    for (int i = 0; i < 4; ++i) shard.set(i, 5);
    for (int i = 0; i < 8; ++i) full.set(i, 1);
    if (rank.rank == 0) {
      rank.comm.broadcast(layout, 0, shard.buffer(), full.buffer(), {"b", Phase::kInit}).wait();
      Work reduce = rank.comm.reduce(layout, 1, full.buffer(), shard.buffer(), ReduceOp::kSum,
                                     false, {"r", Phase::kInit});
      reduce.wait();
      rank.job->set_position(0, Phase::kMetrics, "go");
    } else {
      while (rank.job->position_of(0).unit != "go") std::this_thread::yield();
      rank.comm.broadcast(layout, 0, shard.buffer(), full.buffer(), {"b", Phase::kInit}).wait();
      rank.comm
          .reduce(layout, 1, full.buffer(), shard.buffer(), ReduceOp::kSum, false,
                  {"r", Phase::kInit})
          .wait();
      EXPECT_EQ(full.get(0), 5);
      EXPECT_EQ(shard.get(0), 2);
    }
  });
}

}  // namespace
}  // namespace shardbench::comm
