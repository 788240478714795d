// Collectives beside other libraries: what is set against what, tables, JSON, exit codes.

#include "bench/collectives/peer_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using ::testing::HasSubstr;

CollectivesReport ours(double scale = 1) {
  CollectivesReport report;
  report.request.kinds = {comm::CollectiveKind::kAllReduce, comm::CollectiveKind::kAllGather};
  report.request.min_bytes = report.request.max_bytes = 1 << 20;
  report.backend = "shm";
  for (const CollectiveCase& row : plan_cases(report.request)) {
    CollectiveResult result;
    result.row = row;
    for (CollectiveTiming* timing : {&result.out_of_place, &result.in_place}) {
      timing->time_us = (timing == &result.in_place ? 100 : 200) * scale;
      timing->bandwidth = bandwidth_of(row.kind, 2, row.bytes(), timing->time_us);
    }
    report.results.push_back(result);
  }
  return report;
}

PeersReport both() {
  PeersReport report;
  report.ours = ours();
  report.peers = {{"gloo", "Gloo (torch 9)", {{400, 0}, {400, 0}}, {}, 0},
                  {"mpi", "Open MPI", {{50, 0}, {200, 3}}, {}, 0}};
  report.rounds = 2;
  return report;
}

TEST(CollectivePeers, OursIsInPlaceWherePeersAre) {
  const CollectivesReport report = ours();
  EXPECT_EQ(timing_beside_peers(report.results[0]).time_us, 100);
  EXPECT_EQ(timing_beside_peers(report.results[1]).time_us, 200);
}

TEST(CollectivePeers, MeanOfRounds) {
  const CollectivesReport mean = mean_of({ours(1), ours(3)});
  EXPECT_DOUBLE_EQ(mean.results[0].in_place.time_us, 200);
  EXPECT_DOUBLE_EQ(mean.results[0].in_place.bandwidth.algo_gb_per_s, 1048576 / 200e3);
  CollectivesReport failed;
  failed.failure.emplace();
  EXPECT_TRUE(mean_of({ours(), failed}).failure.has_value());
}

TEST(CollectivePeers, RatiosAreOfBusBandwidths) {
  const nlohmann::ordered_json rows = to_json(peers_table(both()));
  EXPECT_EQ(rows[0]["op"], "all_reduce");
  EXPECT_NEAR(rows[0]["ours_over_gloo"].get<double>(), 4, 1e-9);
  EXPECT_NEAR(rows[0]["ours_over_mpi"].get<double>(), 0.5, 1e-9);
  EXPECT_NEAR(rows[1]["ours_over_gloo"].get<double>(), 2, 1e-9);
  EXPECT_FALSE(rows[1].contains("ours_over_mpi")) << "no bandwidth of a wrong result";
  EXPECT_THAT(peers_text(both()), HasSubstr("WRONG"));
  EXPECT_THAT(peers_text(both()), HasSubstr("# gloo    Gloo (torch 9)\n"));
}

TEST(CollectivePeers, JsonAndExitCodes) {
  PeersReport report = both();
  EXPECT_EQ(report.exit_code(), 1);
  nlohmann::ordered_json json = peers_json(report);
  EXPECT_EQ(json["okay"], false);
  EXPECT_EQ(json["peers"][1]["collectives"][1]["nwrong"], 3);
  EXPECT_FALSE(json["peers"][1]["collectives"][1].contains("bus_bw"));
  report.peers[1].timings[1].wrong = 0;
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(peers_json(report)["okay"], true);
  report.peers[0].timings.clear();
  report.peers[0].failure.emplace();
  report.peers[0].failure->message = "gone";
  report.peers[0].failure->reason = comm::AbortRecord::Reason::kTimeout;
  EXPECT_EQ(report.exit_code(), 3);
  EXPECT_THAT(peers_text(report), HasSubstr("FAILED: gone"));
  report.peers[0].signal = 15;
  EXPECT_EQ(report.exit_code(), 143);
}

TEST(CollectivePeers, RefuseWhatPeersDoNotHave) {
  CollectivesRequest request;
  EXPECT_NO_THROW(refuse_unknown_to_peers(request));
  request.dtypes = {DType::kBFloat16};
  EXPECT_THROW(refuse_unknown_to_peers(request), UserError);
  request = {};
  request.ops = {comm::ReduceOp::kMax};
  EXPECT_THROW(refuse_unknown_to_peers(request), UserError);
  request = {};
  request.root = 1;
  EXPECT_THROW(refuse_unknown_to_peers(request), UserError);
}

}  // namespace
}  // namespace shardbench::bench
