// The scaling table, utilisation, and the throughput figures they rest on.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/compare/document.h"
#include "bench/compare/plain_words.h"
#include "bench/compare/screens.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

/// A step of 100 ms at W = 1, 125 ms at 2, 400 ms at 4.
std::int64_t slowing(const train::RunConfig& config) {
  switch (config.world_size) {
    case 1:
      return 100'000'000;
    case 2:
      return 125'000'000;
    default:
      return 400'000'000;
  }
}

Comparison scaled(Request request, FakeEngine fake = {}) {
  if (!fake.step_ns_of) fake.step_ns_of = slowing;
  return compare(request, fake_registry(), fake.engine());
}

Request at(std::vector<int> worlds) {
  Request request = small_request();
  request.strategies = {"ddp", "fsdp"};
  request.base.batch = 2;
  request.worlds = std::move(worlds);
  return request;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::vector<std::string>> rows_of_text(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(cells_of(line));
  return rows;
}

TEST(Scaling, EfficiencyAndSpeedUpAgainstOneRank) {
  const Section section = scaling_section(scaled(at({1, 2, 4})));
  const auto rows = rows_of_text(section.table.render());
  ASSERT_EQ(rows.size(), 8u);
  // 2 sequences x 8 tokens per rank: 160 tok/s at W=1, 256 at 2, 160 at 4.
  EXPECT_EQ(rows[2], (std::vector<std::string>{"ddp", "1", "2", "100.0", "160", "160", "1.00",
                                               "100", "24.39"}));
  EXPECT_EQ(rows[3], (std::vector<std::string>{"ddp", "2", "4", "125.0", "256", "128", "1.60", "80",
                                               "24.39"}));
  EXPECT_EQ(rows[4], (std::vector<std::string>{"ddp", "4", "8", "400.0", "160", "40", "1.00", "25",
                                               "24.39"}));
  EXPECT_EQ(rows[5][0], "fsdp");
  EXPECT_EQ(rows[7].back(), "6.098");
}

TEST(Scaling, SaysWeakOrStrongAndTheBase) {
  std::vector<std::string> above = scaling_section(scaled(at({1, 2, 4}))).above;
  ASSERT_EQ(above.size(), 2u);
  EXPECT_EQ(above[0],
            "Weak scaling: the batch per rank stays 2, so the global batch grows: 2, 4, 8 at W=1, "
            "2, 4.");
  EXPECT_NE(above[1].find("against W=1"), std::string::npos);
  Request request = at({2, 4});
  request.global_batch = 8;
  above = scaling_section(scaled(request)).above;
  EXPECT_NE(above[0].find("Strong scaling: the global batch stays 8"), std::string::npos);
  EXPECT_NE(above[0].find("batch per rank 4, 2 at W=2, 4"), std::string::npos) << above[0];
  EXPECT_NE(above[1].find("against W=2, the smallest measured"), std::string::npos) << above[1];
  above = scaling_section(scaled(at({2}))).above;
  EXPECT_NE(above[1].find("--world 1,2,4"), std::string::npos);
}

TEST(Scaling, SaysWhenRanksShareCores) {
  Comparison comparison = scaled(at({1, 2, 4}));
  EXPECT_EQ(crowded_cores(comparison), "");
  comparison.cores = 2;
  EXPECT_NE(crowded_cores(comparison).find("At W=4 the ranks share the 2 cores"),
            std::string::npos);
  EXPECT_EQ(scaling_section(comparison).above.size(), 3u);
  comparison.request.base.threads = 2;
  EXPECT_NE(crowded_cores(comparison).find("At W=2, 4 the ranks of 2 threads each"),
            std::string::npos);
}

TEST(Scaling, NamesALargerWorldThatIsSlowerAndWhy) {
  Comparison comparison = scaled(at({1, 2, 4}));
  comparison.cores = 2;
  const std::vector<std::string> lines = slower_with_more_ranks(comparison);
  ASSERT_EQ(lines.size(), 2u);
  // Of 400 ms a fake rank waits a twentieth.
  EXPECT_EQ(lines[0],
            "ddp W=4 does 160 tok/s in total, fewer than W=2 (256): a rank waits in communication "
            "5.0 % of a step (5.0 % there), and 4 threads take turns on 2 cores.");
  EXPECT_NE(plain_words(comparison, {}).find("ddp W=4 does 160 tok/s in"), std::string::npos);
  EXPECT_TRUE(slower_with_more_ranks(scaled(at({1, 2}))).empty());
}

TEST(Scaling, AWrongRowIsNoBase) {
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& run) {
    parity.ok = run.config.world_size != 1;
  };
  const Comparison comparison = scaled(at({1, 2}), fake);
  const Row& row = comparison.blocks[1].rows[0];
  EXPECT_EQ(scaling_base(comparison, row), &row);
  EXPECT_NE(scaling_section(comparison).table.render().find("WRONG"), std::string::npos);
}

// Four ranks, batch 2, length 8, 100 ms: 640 tokens per second of all ranks, 160 of one.
TEST(Throughput, GlobalAndPerRank) {
  FakeEngine fake;
  const Comparison comparison = compare(at({4}), fake_registry(), fake.engine());
  const Row& row = comparison.blocks[0].rows[0];
  EXPECT_DOUBLE_EQ(row.tokens_per_s, 640);
  const auto json = result_json(comparison.request, row, nullptr, comparison.model);
  EXPECT_DOUBLE_EQ(json["tokens_per_s"].get<double>(), 640);
  EXPECT_DOUBLE_EQ(json["tokens_per_s_per_rank"].get<double>(), 160);
  EXPECT_FALSE(json.contains("mfu"));
}

TEST(Throughput, FlopsAndParametersAreThoseOfTheWholeModel) {
  Request request = at({1, 2, 4});
  request.strategies = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
  const Comparison comparison = scaled(request);
  const auto doc = document(comparison, {});
  const double flops = doc["results"][0]["flops_per_token"];
  EXPECT_EQ(doc["results"].size(), 15u);
  for (const auto& result : doc["results"]) EXPECT_EQ(result["flops_per_token"], flops);
  EXPECT_EQ(doc["config"]["model"]["params"], 1'598'464);
}

TEST(Utilization, DividesByThePeakOfAllRanks) {
  FakeEngine fake;
  Request request = at({4});
  const double flops = models::flops_per_token(request.base.model, request.base.seq);
  request.peak_tflops = flops * 640 / 4 / 1e12 * 2;  // twice of what a rank does
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  const Row& row = comparison.blocks[0].rows[1];
  EXPECT_NEAR(row.utilization(request.peak_tflops), 0.5, 1e-12);
  EXPECT_NEAR(result_json(request, row, nullptr, comparison.model)["mfu"].get<double>(), 0.5,
              1e-12);
  for (TableKind kind : {TableKind::kFull, TableKind::kTime, TableKind::kScaling}) {
    const std::string text = render_table(kind, comparison);
    EXPECT_NE(text.find("mfu%"), std::string::npos) << text;
    EXPECT_EQ(text.find("NOTE"), std::string::npos) << text;
  }
  EXPECT_NE(paragraphs(comparison, {}).at(3).text.find("the model uses: ddp and fsdp 50 %"),
            std::string::npos);
}

TEST(Utilization, AboveTheWholeIsFlagged) {
  FakeEngine fake;
  Request request = at({2});
  request.peak_tflops = 1e-9;
  const std::string text =
      render_table(TableKind::kFull, compare(request, fake_registry(), fake.engine()));
  EXPECT_NE(text.find("NOTE: ddp W=2 would use "), std::string::npos) << text;
}

TEST(Utilization, NoPeakNoColumn) {
  EXPECT_EQ(render_table(TableKind::kFull, scaled(at({2}))).find("mfu"), std::string::npos);
}

}  // namespace
}  // namespace shardbench::bench
