#include "bench/collectives/bandwidth.h"

#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
constexpr std::int64_t kMiB = 1 << 20;

TEST(Bandwidth, FourRanksOfOneMiBInAMillisecond) {
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const Bandwidth bandwidth = bandwidth_of(kind, 4, 4 * kMiB, 1000);
    EXPECT_NEAR(bandwidth.algo_gb_per_s, 4.194, 5e-4);
    EXPECT_NEAR(bandwidth.bus_gb_per_s, 3.146, 5e-4);
  }
  EXPECT_NEAR(bandwidth_of(CollectiveKind::kAllReduce, 4, 4 * kMiB, 1000).bus_gb_per_s, 6.291,
              5e-4);
  for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    const Bandwidth bandwidth = bandwidth_of(kind, 4, 4 * kMiB, 1000);
    EXPECT_DOUBLE_EQ(bandwidth.bus_gb_per_s, bandwidth.algo_gb_per_s);
  }
}

TEST(Bandwidth, FactorsByRanks) {
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllReduce, 1), 0);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllReduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kReduceScatter, 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kBroadcast, 64), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kReduce, 64), 1);
}

TEST(Bandwidth, RefusesWhatHasNone) {
  EXPECT_THROW(bus_factor(CollectiveKind::kBarrier, 2), InvariantError);
  EXPECT_THROW(bus_factor(CollectiveKind::kReduce, 0), InvariantError);
  EXPECT_THROW(bandwidth_of(CollectiveKind::kReduce, 2, 8, 0), InvariantError);
}

}  // namespace
}  // namespace shardbench::bench
