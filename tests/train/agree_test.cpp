#include "common/train/agree.h"

#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/train/config.h"
#include "tests/support/ranks.h"

namespace shardbench::train {
namespace {

TEST(AgreeOnSteps, AllStopAtTheShortest) {
  for (int world_size : {1, 2, 3, 4, 8}) {
    testing::run_ranks(world_size, [](testing::Rank& rank) {
      // Rank 0 has three batches, the last rank two.
      const std::int64_t own = rank.rank + 1 == rank.world_size ? 2 : 3 + rank.rank;
      const AgreedSteps agreed = agree_on_steps(rank.comm, own);
      EXPECT_EQ(agreed.steps, 2);
      EXPECT_EQ(agreed.shortest_rank, rank.world_size - 1);
      EXPECT_EQ(agreed.longest, rank.world_size == 1 ? 2 : 1 + rank.world_size);
    });
  }
}

TEST(AgreeOnSteps, EqualLengthsAndNothingAtAll) {
  testing::run_ranks(3, [](testing::Rank& rank) {
    EXPECT_EQ(agree_on_steps(rank.comm, 7).steps, 7);
    EXPECT_EQ(agree_on_steps(rank.comm, rank.rank == 1 ? 0 : 5).steps, 0);
    EXPECT_THROW(agree_on_steps(rank.comm, -1), InvariantError);
  });
}

TEST(RunConfig, StepsOfARankWhoseDataEnd) {
  RunConfig config;
  config.warmup = 2;
  config.steps = 5;
  EXPECT_EQ(config.own_steps(0), 7);
  config.inject = Injection::parse("short@1,4,data");
  EXPECT_EQ(config.own_steps(0), 7);
  EXPECT_EQ(config.own_steps(1), 3);
  config.inject = Injection::parse("short@1,40,data");
  EXPECT_EQ(config.own_steps(1), 7);
  config.inject = Injection::parse("kill@1,4,forward");
  EXPECT_EQ(config.own_steps(1), 7);
}

}  // namespace
}  // namespace shardbench::train
