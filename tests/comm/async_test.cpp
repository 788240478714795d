// Several calls in flight, dropped handles, waits out of order, memory given back.
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
                         ::testing::Combine(::testing::Values(RankMode::kThreads,
                                                              RankMode::kForked),
                                            ::testing::Values(1, 2, 3, 8), ::testing::Bool()));

// Each rank waits in another order; the values show that no call took another one's data.
TEST_P(Async, WaitsInAnyOrder) {
  run([](Rank& rank, bool symmetric) {
    constexpr int kCalls = 12;
    std::vector<TestBuffer> buffers;
    std::vector<Work> works;
    for (int c = 0; c < kCalls; ++c) {
      buffers.emplace_back(rank.comm, symmetric, DType::kFloat32, 100 + c);
      for (std::int64_t i = 0; i < 100 + c; ++i) buffers.back().set(i, c * 10 + rank.rank);
      works.push_back(rank.comm.all_reduce(buffers.back().buffer(), ReduceOp::kSum,
                                           {"call " + std::to_string(c), Phase::kBackward}));
    }
    const int world = rank.world_size;
    for (int k = 0; k < kCalls; ++k) {
      const int c = (k * 5 + rank.rank * 7) % kCalls;
      works[static_cast<std::size_t>(c)].wait();
      for (std::int64_t i = 0; i < 100 + c; ++i) {
        ASSERT_EQ(buffers[static_cast<std::size_t>(c)].get(i),
                  c * 10 * world + world * (world - 1) / 2);
      }
    }
  });
}

// Handles are dropped at once, far more calls than slots; the last one is waited for.
TEST_P(Async, DroppedWorksStillHappen) {
  run([](Rank& rank, bool symmetric) {
    TestBuffer sum(rank.comm, symmetric, DType::kInt64, 40);
    TestBuffer shard(rank.comm, symmetric, DType::kInt64, 40);
    for (std::int64_t i = 0; i < 40; ++i) {
      sum.set(i, 1);
      shard.set(i, 0);
    }
    const ShardLayout layout = ShardLayout::even(40, rank.world_size);
    constexpr int kCalls = 700;
    for (int c = 0; c < kCalls; ++c) {
      rank.comm.reduce_scatter(layout, sum.buffer(), shard.buffer(), ReduceOp::kSum, true,
                               {"drop", Phase::kBackward});
    }
    rank.comm.quiesce();
    for (std::int64_t i = 0; i < layout.count(rank.rank); ++i) {
      ASSERT_EQ(shard.get(i), kCalls * rank.world_size);
    }
  });
}

// Nobody waits for anything: leaving the rank must still serve the peers.
TEST_P(Async, LeavingServesPeers) {
  run([](Rank& rank, bool symmetric) {
    TestBuffer data(rank.comm, symmetric, DType::kFloat32, 5000);
    for (std::int64_t i = 0; i < 5000; ++i) data.set(i, 1);
    Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"last", Phase::kInit});
    if (rank.rank == 0) {
      work.wait();
      for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(data.get(i), rank.world_size);
    } else {
      work = Work();
      rank.comm.quiesce();
    }
  });
}

// A gather stays open while other calls go by; all buffers are used again in every step.
TEST_P(Async, InterleavesKinds) {
  run([](Rank& rank, bool symmetric) {
    const int world = rank.world_size;
    const ShardLayout layout = ShardLayout::even(50, world);
    TestBuffer shard(rank.comm, symmetric, DType::kFloat32, 50);
    TestBuffer full(rank.comm, symmetric, DType::kFloat32, 50);
    TestBuffer grads(rank.comm, symmetric, DType::kFloat32, 50);
    TestBuffer total(rank.comm, symmetric, DType::kFloat32, 50);
    TestBuffer loss(rank.comm, symmetric, DType::kFloat64, 1);
    for (int step = 0; step < 150; ++step) {
      for (std::int64_t i = 0; i < layout.count(rank.rank); ++i) shard.set(i, step + rank.rank);
      for (std::int64_t i = 0; i < 50; ++i) {
        grads.set(i, step);
        total.set(i, 7);
      }
      loss.set(0, step);
      Work gather =
          rank.comm.all_gather(layout, shard.buffer(), full.buffer(), {"g", Phase::kForward});
      Work sum = rank.comm.all_reduce(loss.buffer(), ReduceOp::kMax, {"loss", Phase::kMetrics});
      const int root = step % world;
      Work reduce = rank.comm.reduce(layout, root, grads.buffer(), total.buffer(), ReduceOp::kSum,
                                     true, {"r", Phase::kBackward});
      sum.wait();
      ASSERT_EQ(loss.get(0), step);
      gather.wait();
      for (int peer = 0; peer < world; ++peer) {
        for (const auto& s : layout.segments(peer)) {
          ASSERT_EQ(full.get(s.full_offset), step + peer);
        }
      }
      reduce.wait();
      rank.comm.quiesce();
      if (rank.rank == root && layout.count(root) > 0) {
        ASSERT_EQ(total.get(0), 7 + step * world);
      }
    }
  });
}

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
