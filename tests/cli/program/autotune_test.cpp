// `--autotune` of the built program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Wide enough for the fixed rule to take other kernels than ATen's.
std::vector<std::string> job(std::vector<std::string> arguments) {
  for (const char* flag :
       {"--layers",  "1",  "--heads", "2",  "--hidden", "128", "--vocab", "192",
        "--context", "96", "--seq",   "96", "--batch",  "4",   "--data",  "synthetic",
        "--warmup",  "1",  "--steps", "2",  "--format", "json"}) {
    arguments.emplace_back(flag);
  }
  return arguments;
}

json document_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run_shardbench(job(arguments));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST(Autotune, MeasuredChoicesKeepEveryRowRight) {
  const json document = document_of({"compare", "--world", "1,2,3"});
  const json& tuning = document["config"]["tuning"];
  EXPECT_EQ(tuning["mode"], "on");
  EXPECT_EQ(tuning["entries"].size(), 15u);  // five layers, three passes
  for (const json& entry : tuning["entries"]) {
    EXPECT_TRUE(entry["times_ns"].contains(entry["chosen"].get<std::string>())) << entry;
    EXPECT_FALSE(entry.contains("refused")) << entry;
  }
  ASSERT_EQ(document["results"].size(), 9u);
  for (const json& row : document["results"]) EXPECT_EQ(row["parity"]["bit_equal"], true) << row;
}

TEST(Autotune, FixedAndOffAreRightAndNotTheSame) {
  std::vector<json> hashes;
  for (const char* mode : {"fixed", "off"}) {
    const json document = document_of({"compare", "--strategy", "ddp,fsdp", "--autotune", mode});
    EXPECT_EQ(document["config"]["tuning"], (json{{"mode", mode}, {"entries", json::array()}}));
    for (const json& row : document["results"]) EXPECT_EQ(row["parity"]["bit_equal"], true) << row;
    hashes.push_back(document["results"][0]["parameter_hash"]);
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST(Autotune, DeterministicInvocationsGiveTheSameBits) {
  std::vector<json> hashes;
  for (int invocation = 0; invocation < 2; ++invocation) {
    const json document = document_of({"compare", "--strategy", "fsdp", "--deterministic"});
    EXPECT_EQ(document["config"]["tuning"]["mode"], "fixed");
    hashes.push_back(document["results"][0]["parameter_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(Autotune, RunMeasuresToo) {
  const std::vector<std::string> arguments = {
      "run", "--layers", "1", "--heads", "2",         "--hidden", "32", "--context", "16",  "--seq",
      "16",  "--batch",  "2", "--data",  "synthetic", "--steps",  "2",  "--format",  "json"};
  const Outcome outcome = run_shardbench(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("tuning: 15 shapes measured"));
  EXPECT_EQ(json::parse(outcome.out)["config"]["tuning"]["mode"], "on");
}

TEST(Autotune, MeasuringAgainstDeterminismIsRefused) {
  const Outcome outcome = run_shardbench(job({"compare", "--deterministic", "--autotune", "on"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--autotune fixed"));
  EXPECT_EQ(run_shardbench(job({"compare", "--autotune", "yes"})).exit_code, 2);
}

TEST(Autotune, ADryRunMeasuresNothing) {
  std::vector<std::string> arguments = job({"compare", "--dry-run"});
  const Outcome outcome = run_shardbench(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("tuning:"), std::string::npos);
}

}  // namespace
}  // namespace shardbench::cli
