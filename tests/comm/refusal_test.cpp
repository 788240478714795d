// The most ranks there can be, and what is refused.
#include <gtest/gtest.h>

#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using testing::Rank;

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
