#include "bench/compare/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/compare/compare.h"
#include "bench/compare/screens.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

Request swept_request() {
  Request request = small_request();
  request.strategies = {"ddp", "fsdp"};
  request.worlds = {2, 3};
  request.base.batch = 2;
  request.sweep.batches = {2, 4};
  request.sweep.units = {sharding::UnitPolicy::parse("block"),
                         sharding::UnitPolicy::parse("tensor")};
  return request;
}

std::vector<std::string> titles_of(const Request& request) {
  std::vector<std::string> titles;
  for (const train::RunConfig& job : blocks_of(request)) {
    titles.push_back(block_title(request, job));
  }
  return titles;
}

TEST(Sweep, EveryCombinationOnceWorldOutermost) {
  EXPECT_EQ(titles_of(swept_request()),
            (std::vector<std::string>{"W=2, batch 2, units block", "W=2, batch 2, units tensor",
                                      "W=2, batch 4, units block", "W=2, batch 4, units tensor",
                                      "W=3, batch 2, units block", "W=3, batch 2, units tensor",
                                      "W=3, batch 4, units block", "W=3, batch 4, units tensor"}));
  EXPECT_EQ(titles_of(small_request()), std::vector<std::string>{"W=2"});
}

TEST(Sweep, NamesAreUniqueAndSayOnlyWhatVaries) {
  Request request = swept_request();
  request.sweep.prefetches = {0, 2};
  request.sweep.links = {std::nullopt, comm::LinkModel::parse("1Gbit,20us"),
                         comm::LinkModel::parse("10Gbit,20us"),
                         comm::LinkModel::parse("10Gbit,1ms")};
  request.sweep.bucket_caps_mib = {1, 25};
  std::set<std::string> names;
  for (train::RunConfig job : blocks_of(request)) {
    for (const std::string& strategy : request.strategies) {
      job.strategy = strategy;
      EXPECT_TRUE(names.insert(result_name(request, job)).second) << result_name(request, job);
    }
  }
  EXPECT_EQ(names.size(), 2u * 2 * 2 * 2 * 2 * 4 * 2);
  EXPECT_TRUE(names.contains("fsdp/w3/tensor/b4/p2/link1Gbit/c25"));
  EXPECT_TRUE(names.contains("ddp/w2/block/b2/p0/linknone/c1"));
  EXPECT_TRUE(names.contains("ddp/w2/block/b2/p0/link10Gbit-1ms/c1"));
  train::RunConfig job = blocks_of(small_request()).front();
  job.strategy = "fsdp";
  EXPECT_EQ(result_name(small_request(), job), "fsdp/w2/block");
}

TEST(Sweep, ReferencesAreSharedByEqualWork) {
  FakeEngine fake;
  const Request request = swept_request();
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  // Two worlds x two batches; units are not part of the work.
  ASSERT_EQ(fake.reference_jobs.size(), 4u);
  EXPECT_EQ(references_of(request, fake_registry()), 4);
  EXPECT_EQ(fake.reference_jobs[0].batch, 2);
  EXPECT_EQ(fake.reference_jobs[1].batch, 4);
  EXPECT_EQ(fake.reference_jobs[3].world_size, 3);
  EXPECT_EQ(static_cast<int>(fake.log.size()), runs_of(request, fake_registry()));
  EXPECT_EQ(comparison.blocks.size(), 8u);
  for (const Block& block : comparison.blocks) {
    ASSERT_EQ(block.rows.size(), 2u);
    EXPECT_TRUE(block.rows[1].right());
    EXPECT_EQ(block.rows[0].config.batch, block.rows[1].config.batch);
  }
}

TEST(Sweep, RoundsGoOverAllRowsOfAWorld) {
  Request request = swept_request();
  request.worlds = {2};
  request.sweep.batches.clear();
  request.repetitions = 2;
  FakeEngine fake;
  compare(request, fake_registry(), fake.engine());
  std::vector<std::string> order;
  for (const train::RunConfig& job : fake.jobs) {
    order.push_back(job.strategy + " " + job.options.units.to_string());
  }
  const std::vector<std::string> round = {"ddp block", "fsdp block", "ddp tensor", "fsdp tensor"};
  std::vector<std::string> expected = round;
  expected.insert(expected.end(), round.begin(), round.end());
  EXPECT_EQ(order, expected);
}

TEST(Sweep, AFailedRowStopsNoOther) {
  Request request = swept_request();
  request.worlds = {2};
  request.repetitions = 2;
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy != "fsdp" || run.config.batch != 4) return;
    run.ranks.clear();
    run.failure.emplace();
    run.failure->message = "planted";
  };
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  int failed = 0;
  for (const Row* row : rows_of(comparison)) failed += row->right() ? 0 : 1;
  EXPECT_EQ(failed, 2);
  // The two failed rows run once, the six others twice.
  EXPECT_EQ(fake.jobs.size(), 2u + 6u * 2u);
}

TEST(Sweep, TheBaseValueStandsForAnEmptyList) {
  Request request = small_request();
  request.base.options.forward_prefetch = 3;
  request.base.options.backward_prefetch = 1;
  const std::vector<train::RunConfig> jobs = blocks_of(request);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(axis_value(Axis::kPrefetch, jobs[0]), "3/1");
  EXPECT_EQ(axis_value(Axis::kLink, jobs[0]), "none");
  EXPECT_EQ(axis_value(Axis::kBucketCap, jobs[0]), "25");
  for (Axis axis : kAxes) EXPECT_FALSE(varies(request, axis));
}

TEST(Sweep, ContextLineListsWhatVaries) {
  Request request = swept_request();
  request.sweep.prefetches = {0, 1};
  request.sweep.links = {std::nullopt, comm::LinkModel::parse("1Gbit,20us")};
  const std::string line =
      context_line(request, models::shape_of(request.base.model), request.worlds);
  for (const char* part : {"W=2,3", "batch 2,4/rank", "units block,tensor",
                           "links none and 1Gbit,20us", "prefetch 0,1"}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
}

TEST(Sweep, BriefScreenHasATitlePerBlock) {
  Request request = swept_request();
  request.worlds = {2};
  FakeEngine fake;
  const std::string text =
      render_table(TableKind::kBrief, compare(request, fake_registry(), fake.engine()));
  for (const char* title : {"\nW=2, batch 2, units block\n", "\nW=2, batch 4, units tensor\n"}) {
    EXPECT_NE(text.find(title), std::string::npos) << text;
  }
  const std::string full =
      render_table(TableKind::kFull, compare(request, fake_registry(), fake.engine()));
  EXPECT_NE(full.find("strategy W  batch  units"), std::string::npos) << full;
}

}  // namespace
}  // namespace shardbench::bench
