// All strategies side by side in the built program: stages, ways to start, data that end early.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> all_five(const std::vector<std::string>& more) {
  return with(small_job({"compare", "--strategy", "ddp,zero1,zero2,zero3,fsdp", "--steps", "2",
                         "--warmup", "1", "--quiet"}),
              more);
}

json document_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run_shardbench(with(arguments, {"--format", "json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

std::set<std::string> hashes_of(const json& doc) {
  std::set<std::string> hashes;
  for (const json& result : doc["results"]) hashes.insert(result["parameter_hash"]);
  return hashes;
}

class FiveStrategies : public ::testing::TestWithParam<std::string> {};

TEST_P(FiveStrategies, EndWithTheSameWeights) {
  const json doc = document_of(all_five({"--world", GetParam()}));
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["okay"], true);
  ASSERT_EQ(doc["results"].size(), 5u);
  EXPECT_EQ(hashes_of(doc).size(), 1u);
  for (const json& result : doc["results"]) {
    EXPECT_EQ(result["parity"]["bit_equal"], true) << result["name"];
  }
}

TEST_P(FiveStrategies, ComputeInBf16) {
  const json doc = document_of(all_five({"--world", GetParam(), "--dtype", "bf16"}));
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["okay"], true);
  EXPECT_EQ(hashes_of(doc).size(), 1u);
  const json recipe = doc["config"]["recipe"];
  for (const char* key : {"param_dtype", "gather_dtype"}) EXPECT_EQ(recipe[key], "bf16");
  for (const char* key : {"reduce_dtype", "grad_dtype", "master_dtype", "state_dtype"}) {
    EXPECT_EQ(recipe[key], "fp32");
  }
  for (const json& result : doc["results"]) {
    EXPECT_EQ(result["parity"]["bit_equal"], true) << result["name"];
    EXPECT_FALSE(result["parity"].contains("grad_max_rel_diff"));
    EXPECT_EQ(result["traffic_ok"], true) << result["name"];
    EXPECT_FALSE(result.contains("loss_scales"));
    for (const json& entry : result["traffic"]) {
      const std::string kind = entry["kind"];
      if (entry["phase"] == "metrics") continue;
      const bool gathers = kind == "all_gather" || kind == "broadcast";
      EXPECT_EQ(entry["dtype"], gathers ? "bf16" : "fp32") << result["name"] << " " << kind;
    }
  }
}

TEST_P(FiveStrategies, ComputeInFp16WithALossScale) {
  const json doc = document_of(all_five({"--world", GetParam(), "--dtype", "fp16", "--reduce-dtype",
                                         "fp16", "--loss-scale", "dynamic"}));
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["okay"], true);
  EXPECT_EQ(doc["config"]["loss_scale"], "dynamic");
  for (const json& result : doc["results"]) {
    EXPECT_EQ(result["parity"]["bit_equal"], true) << result["name"];
    EXPECT_EQ(result["traffic_ok"], true) << result["name"];
    ASSERT_EQ(result["loss_scales"].size(), 3u);
    EXPECT_EQ(result["loss_scales"][0], 65536);
    EXPECT_TRUE(result["skipped_steps"].is_array());
    EXPECT_EQ(result["skipped_steps"], doc["results"][0]["skipped_steps"]);
  }
}

TEST_P(FiveStrategies, GiveTheSameBitsInTwoDeterministicInvocations) {
  const std::vector<std::string> job = all_five({"--world", GetParam(), "--deterministic"});
  const json first = document_of(job);
  const json second = document_of(job);
  ASSERT_TRUE(first.is_object() && second.is_object());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(first["results"][i]["parameter_hash"], second["results"][i]["parameter_hash"]);
    EXPECT_EQ(first["results"][i]["losses"], second["results"][i]["losses"]);
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, FiveStrategies, ::testing::Values("1", "2", "3", "4"));

TEST(Init, EveryWayToStartGivesTheSameRun) {
  std::set<std::string> hashes;
  for (const char* how : {"deferred", "broadcast", "broadcast-tensor"}) {
    const json doc = document_of(all_five({"--world", "3", "--init", how, "--deterministic"}));
    ASSERT_TRUE(doc.is_object()) << how;
    EXPECT_EQ(doc["okay"], true) << how;
    hashes.merge(hashes_of(doc));
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(ShortData, AllRanksStopAtTheShortestAndSaySo) {
  const Outcome outcome = run_shardbench(
      with(small_job({"compare", "--strategy", "ddp,zero1,fsdp", "--steps", "3", "--warmup", "0"}),
           {"--inject", "short@1,3,data", "--timeout", "20"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("the data of rank 1 end after 2 of 3 steps: all ranks stop there"));
  EXPECT_EQ(children_left(), 0);
}

TEST(ShortData, NothingToMeasureIsRefused) {
  const Outcome outcome =
      run_shardbench(with(small_job({"compare", "--steps", "3", "--warmup", "2", "--quiet"}),
                          {"--inject", "short@1,3,data"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("name step 4"));
}

}  // namespace
}  // namespace shardbench::cli
