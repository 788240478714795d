// Forked ranks: results, planted faults, exit codes.

#include "bench/collectives/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using ::testing::HasSubstr;

CollectivesRequest small_request() {
  CollectivesRequest request;
  request.min_bytes = 64;
  request.max_bytes = 4096;
  request.iterations = 4;
  request.warmup = 1;
  return request;
}

TEST(RunCollectives, AllKindsOnTwoRanks) {
  std::int64_t last = 0;
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), small_request(),
                                                   [&](std::int64_t done) { last = done; });
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.backend, "shm");
  ASSERT_EQ(report.pids.size(), 2u);
  EXPECT_NE(report.pids[0], report.pids[1]);
  ASSERT_EQ(report.results.size(), 5u * 3);
  EXPECT_EQ(report.wrong(), 0);
  EXPECT_LE(last, 15);
  for (const CollectiveResult& result : report.results) {
    for (const CollectiveTiming* timing : {&result.out_of_place, &result.in_place}) {
      EXPECT_GT(timing->time_us, 0);
      EXPECT_DOUBLE_EQ(timing->bandwidth.algo_gb_per_s,
                       static_cast<double>(result.row.bytes()) / timing->time_us / 1e3);
      // Means over two ranks, S the payload: all_reduce S, all others S / 2.
      const bool twice = result.row.kind == CollectiveKind::kAllReduce;
      EXPECT_DOUBLE_EQ(timing->wire_bytes_mean,
                       static_cast<double>(result.row.bytes()) / (twice ? 1 : 2));
    }
  }
  EXPECT_GT(report.average_bus_gb_per_s(), 0);
}

// Payloads beyond the caches are copied in another way.
TEST(RunCollectives, LargeUnevenPayloadsAreExactInBothKindsOfMemory) {
  for (const bool symmetric : {true, false}) {
    CollectivesRequest request = small_request();
    request.world_size = 3;
    request.root = 1;
    request.symmetric = symmetric;
    request.min_bytes = request.max_bytes = (16 << 20) + 52;
    request.iterations = 1;
    request.warmup = 0;
    const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
    EXPECT_EQ(report.exit_code(), 0) << symmetric;
    EXPECT_EQ(report.results.size(), 5u);
    EXPECT_EQ(report.wrong(), 0);
  }
}

TEST(RunCollectives, OneRankIsLocalAndSendsNothing) {
  CollectivesRequest request = small_request();
  request.world_size = 1;
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.backend, "local");
  for (const CollectiveResult& result : report.results) {
    EXPECT_EQ(result.out_of_place.wire_bytes_mean, 0);
    if (result.row.kind == CollectiveKind::kAllReduce) {
      EXPECT_EQ(result.in_place.bandwidth.bus_gb_per_s, 0);
    }
  }
}

TEST(RunCollectives, APlantedWrongElementGivesOne) {
  CollectivesRequest request = small_request();
  request.fault = CollectivesFault::parse("wrong@1,2");
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
  EXPECT_EQ(report.exit_code(), 1);
  EXPECT_EQ(report.wrong(), 2);  // out-of-place and in-place
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    EXPECT_EQ(report.results[i].out_of_place.wrong, i == 1 ? 1 : 0);
    EXPECT_EQ(report.results[i].in_place.wrong, i == 1 ? 1 : 0);
  }
}

TEST(RunCollectives, ALostRankGivesThree) {
  CollectivesRequest request = small_request();
  request.fault = CollectivesFault::parse("kill@1,2");
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
  EXPECT_EQ(report.exit_code(), 3);
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, HasSubstr("rank 1"));
  EXPECT_THAT(report.failure->message, HasSubstr("all_reduce 512 B"));
  EXPECT_TRUE(report.results.empty());
}

TEST(RunCollectives, AStalledRankGivesThree) {
  CollectivesRequest request = small_request();
  request.timeout = std::chrono::milliseconds(300);
  request.fault = CollectivesFault::parse("stall@0,1");
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
  EXPECT_EQ(report.exit_code(), 3);
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, HasSubstr("rank 0"));
}

TEST(RunCollectives, TheEmulatedLinkTakesItsTime) {
  CollectivesRequest request = small_request();
  request.kinds = {CollectiveKind::kAllGather};
  request.max_bytes = 64;
  request.link = comm::LinkModel::parse("1Gbit,2ms");
  const CollectivesReport report = run_collectives(*comm::forked_ranks(), request);
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_GE(report.results[0].out_of_place.time_us, 2000);
}

TEST(ExitCode, ByWhatHappened) {
  CollectivesReport report;
  EXPECT_EQ(report.exit_code(), 0);
  report.failure = comm::AbortRecord{};
  report.failure->reason = comm::AbortRecord::Reason::kThrew;
  EXPECT_EQ(report.exit_code(), 1);
  report.failure->reason = comm::AbortRecord::Reason::kTimeout;
  EXPECT_EQ(report.exit_code(), 3);
  report.signal = 15;
  EXPECT_EQ(report.exit_code(), 143);
}

}  // namespace
}  // namespace shardbench::bench
