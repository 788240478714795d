// Large, in-place and many-rank forms of the collectives, and refusals.
#include <gtest/gtest.h>

#include <limits>

#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using testing::Rank;
using testing::RankMode;

constexpr std::int64_t kLarge = (std::int64_t{3} << 20) / 4 + 7;  // 3 MiB of fp32, and a bit

float large_value(int rank, std::int64_t i) {
  return static_cast<float>((i * (rank + 3)) % 1001 - 500);
}

class LargeCollectives : public ::testing::TestWithParam<std::tuple<RankMode, int, bool>> {};

TEST_P(LargeCollectives, GatherOfScatteredSumsEqualsAllReduce) {
  const auto [mode, world_size, symmetric] = GetParam();
  testing::RankOptions options;
  options.mode = mode;
  testing::run_ranks(
      world_size,
      [is_symmetric = symmetric](Rank& rank) {
        Communicator& comm = rank.comm;
        const ShardLayout layout = ShardLayout::even(kLarge, rank.world_size);
        TestBuffer full(comm, is_symmetric, DType::kFloat32, kLarge);
        TestBuffer data(comm, is_symmetric, DType::kFloat32, kLarge);
        TestBuffer shard(comm, is_symmetric, DType::kFloat32, layout.shard_extent(rank.rank));
        auto* in = static_cast<float*>(full.buffer().data);
        auto* reduced = static_cast<float*>(data.buffer().data);
        for (std::int64_t i = 0; i < kLarge; ++i) in[i] = reduced[i] = large_value(rank.rank, i);

        Work sums = comm.reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kSum,
                                        false, {"sums", Phase::kBackward});
        sums.wait_released();  // or the gather below would overwrite what peers still read
        comm.all_gather(layout, shard.buffer(), full.buffer(), {"back", Phase::kForward}).wait();
        comm.all_reduce(data.buffer(), ReduceOp::kSum, {"all", Phase::kBackward}).wait();
        for (std::int64_t i = 0; i < kLarge; ++i) {
          float want = 0;
          for (int peer = 0; peer < rank.world_size; ++peer) want += large_value(peer, i);
          ASSERT_EQ(in[i], want) << i;
          ASSERT_EQ(reduced[i], want) << i;
        }
        comm.quiesce();
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(All, LargeCollectives,
                         ::testing::Combine(::testing::Values(RankMode::kThreads,
                                                              RankMode::kForked),
                                            ::testing::Values(2, 3, 5), ::testing::Bool()));

TEST(Collectives, GatherInPlaceAndScatterInPlace) {
  testing::run_ranks(3, [](Rank& rank) {
    const ShardLayout layout = ShardLayout::even(17, rank.world_size);
    const std::int64_t begin = layout.segments(rank.rank)[0].full_offset;
    TestBuffer full(rank.comm, true, DType::kFloat32, 17);
    const std::int64_t count = layout.count(rank.rank);
    for (std::int64_t i = 0; i < count; ++i) full.set(begin + i, test_value(rank.rank, begin + i));
    auto* own = static_cast<float*>(full.buffer().data) + begin;
    rank.comm
        .all_gather(layout, {own, count, DType::kFloat32}, full.buffer(), {"g", Phase::kForward})
        .wait_released();
    for (int peer = 0; peer < rank.world_size; ++peer) {
      for (std::int64_t i = 0; i < layout.count(peer); ++i) {
        const std::int64_t at = layout.segments(peer)[0].full_offset + i;
        ASSERT_EQ(full.get(at), test_value(peer, at));
      }
    }
    // All ranks hold the same now: the sum over ranks, into the own part of the same buffer.
    rank.comm
        .reduce_scatter(layout, full.buffer(), {own, count, DType::kFloat32}, ReduceOp::kSum, false,
                        {"s", Phase::kBackward})
        .wait();
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(full.get(begin + i), 3 * test_value(rank.rank, begin + i));
    }
    rank.comm.quiesce();
  });
}

TEST(Collectives, SixtyFourRanks) {
  testing::run_ranks(64, [](Rank& rank) {
    TestBuffer data(rank.comm, rank.rank % 2 == 0, DType::kFloat32, 1000);
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t i = 0; i < 1000; ++i) data.set(i, rank.rank + static_cast<double>(i));
      rank.comm.barrier({"meet", Phase::kInit}).wait();
      rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, {"sum", Phase::kInit}).wait();
      for (std::int64_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(data.get(i), 64 * 63 / 2 + 64 * static_cast<double>(i));
      }
    }
  });
}

// An average of 1 and 3 is 2, never the sum 4.
TEST(Collectives, AverageIsNoSum) {
  testing::run_ranks(2, [](Rank& rank) {
    const ShardLayout layout = ShardLayout::contiguous({1, 1});
    for (const DType dtype : all_dtypes()) {
      if (!is_defined(dtype, ReduceOp::kAverage)) continue;
      for (const bool symmetric : {true, false}) {
        TestBuffer full(rank.comm, symmetric, dtype, 2);
        TestBuffer data(rank.comm, symmetric, dtype, 1);
        TestBuffer shard(rank.comm, symmetric, dtype, 1);
        const double mine = rank.rank == 0 ? 1 : 3;
        full.set(0, mine);
        full.set(1, mine);
        data.set(0, mine);
        const CallTag tag{"average", Phase::kBackward};
        rank.comm.all_reduce(data.buffer(), ReduceOp::kAverage, tag).wait();
        EXPECT_EQ(data.get(0), 2) << name_of(dtype);
        rank.comm
            .reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kAverage, false, tag)
            .wait_released();
        EXPECT_EQ(shard.get(0), 2) << name_of(dtype);
        shard.set(0, -1);
        rank.comm.reduce(layout, 1, full.buffer(), shard.buffer(), ReduceOp::kAverage, false, tag)
            .wait_released();
        EXPECT_EQ(shard.get(0), rank.rank == 1 ? 2 : -1) << name_of(dtype);
      }
    }
  });
}

TEST(Collectives, MaximumKeepsNaN) {
  testing::run_ranks(3, [](Rank& rank) {
    TestBuffer data(rank.comm, true, DType::kFloat32, 3);
    for (int i = 0; i < 3; ++i) {
      data.set(i, i == rank.rank ? std::numeric_limits<double>::quiet_NaN() : rank.rank);
    }
    rank.comm.all_reduce(data.buffer(), ReduceOp::kMax, {"max", Phase::kMetrics}).wait();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(data.get(i)));
  });
}

TEST(Collectives, RefusesUndefinedReductionsByName) {
  testing::run_ranks(1, [](Rank& rank) {
    std::int64_t value = 1;
    try {
      rank.comm.all_reduce({&value, 1, DType::kInt64}, ReduceOp::kAverage, {"x", Phase::kInit});
      ADD_FAILURE() << "an average of int64 was accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("average of int64"), std::string::npos)
          << error.what();
    }
    EXPECT_THROW(rank.comm.all_reduce({&value, 8, DType::kUInt8}, ReduceOp::kSum, {"x"}),
                 UserError);
  });
}

TEST(Collectives, RefusesWorldSizesOutOfRange) {
  for (const int world_size : {0, -1, 65}) {
    Job::Options options;
    options.world_size = world_size;
    EXPECT_THROW(Job::create(options), UserError) << world_size;
  }
}

TEST(Collectives, OneCommunicatorPerRank) {
  Job::Options options;
  const auto job = Job::create(options);
  auto first = make_shm(job, 0);
  EXPECT_THROW(make_shm(job, 0), InvariantError);
  first.reset();
  EXPECT_NO_THROW(make_shm(job, 0));
}

}  // namespace
}  // namespace shardbench::comm
