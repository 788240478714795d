// One block that all ranks reach, and calls that have no symmetric memory at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/local/local.h"
#include "common/comm/recorder.h"
#include "common/comm/shm/shm.h"
#include "common/comm/staged.h"
#include "common/core/error.h"
#include "common/memory/tracker.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using ::testing::HasSubstr;
using testing::Rank;
using testing::RankMode;

class SharedMemory : public ::testing::TestWithParam<std::tuple<RankMode, int>> {};

TEST_P(SharedMemory, EveryRankSeesWhatAnyWrites) {
  const auto [mode, world_size] = GetParam();
  testing::RankOptions options;
  options.mode = mode;
  testing::run_ranks(
      world_size,
      [](Rank& rank) {
        constexpr std::int64_t kEach = 1000;
        const std::int64_t all = kEach * rank.world_size;
        SymmetricMemory block =
            rank.comm.shared_empty(static_cast<std::size_t>(all) * 4, kEach * 4);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0u);
        auto* values = static_cast<float*>(block.data());
        for (std::int64_t i = 0; i < kEach; ++i) {
          values[rank.rank * kEach + i] = static_cast<float>(rank.rank * kEach + i);
        }
        rank.comm.barrier({"written"}).wait();
        for (std::int64_t i = 0; i < all; ++i) ASSERT_EQ(values[i], static_cast<float>(i));
        rank.comm.barrier({"read"}).wait();
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(All, SharedMemory,
                         ::testing::Combine(::testing::Values(RankMode::kThreads,
                                                              RankMode::kForked),
                                            ::testing::Values(1, 2, 3, 4, 8)));

TEST(SharedMemory, EachRankHasItsPartPutDown) {
  testing::RankOptions options;
  options.mode = RankMode::kForked;
  testing::run_ranks(
      2,
      [](Rank& rank) {
        const memory::CategoryScope scope(memory::Category::kParam);
        const auto booked = [] {
          return memory::tracker().live()[static_cast<std::size_t>(memory::Category::kParam)];
        };
        const std::int64_t before = booked();
        const std::size_t own = rank.rank == 0 ? 100 : 900;
        {
          const SymmetricMemory block = rank.comm.shared_empty(1000, own);
          EXPECT_EQ(booked() - before, static_cast<std::int64_t>(own));
          rank.comm.barrier({"end"}).wait();
        }
        EXPECT_EQ(booked(), before);
      },
      options);
}

TEST(SharedMemory, LocalHasItsOwn) {
  const auto comm = make_local();
  const SymmetricMemory block = comm->shared_empty(100, 100);
  EXPECT_EQ(block.bytes(), 100u);
}

TEST(Staging, MovesTheSameThroughBuffers) {
  Job::Options options;
  options.world_size = 3;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    const auto comm = record(with_staging(make_shm(job, rank)), wire_matrix(job));
    const SymmetricMemory memory = comm->symmetric_empty(3000);
    auto* values = static_cast<float*>(memory.data());
    for (int i = 0; i < 750; ++i) values[i] = static_cast<float>(rank + i);
    comm->all_reduce({values, 750, DType::kFloat32}, ReduceOp::kSum, {"x", Phase::kBackward})
        .wait_released();
    for (int i = 0; i < 750; ++i) EXPECT_EQ(values[i], static_cast<float>(3 + 3 * i));
    comm->quiesce();
    EXPECT_GT(comm->traffic()[0].wire.staging, 0);
    EXPECT_EQ(comm->traffic()[0].wire.sent, comm->traffic()[0].algo_bytes);
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

}  // namespace
}  // namespace shardbench::comm
