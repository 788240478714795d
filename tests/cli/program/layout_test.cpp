// The layout command of the built program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(LayoutCommand, NeedsNoDataAndShowsOwnersAndRows) {
  RunOptions options;
  options.environment = {"SHARDBENCH_DATA_DIR=/no/such/folder"};
  const Outcome outcome = run_shardbench({"layout", "--model", "gpt2", "--world", "8"}, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("gpt2: 124,439,808 params in 148 tensors"));
  EXPECT_THAT(outcome.out, HasSubstr("zero3 W=8: rank 0 keeps 2.48 x the mean"));
  EXPECT_THAT(outcome.out, HasSubstr("6283 x7, 6276"));
}

TEST(LayoutCommand, EveryWorldSizeUpToTheMost) {
  const Outcome outcome =
      run_shardbench({"layout", "--model", "gpt2", "--world", "1-1024", "--format", "csv",
                      "--strategy", "ddp,zero1,zero2,zero3,fsdp"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1 + 5 * 1024);
  EXPECT_THAT(outcome.out, HasSubstr("balance"));
}

TEST(LayoutCommand, JsonOnStdoutAndInTheFileAreTheSame) {
  const std::string path = ::testing::TempDir() + "layout.json";
  const Outcome outcome =
      run_shardbench({"layout", "--world", "3,5", "--strategy", "zero1,fsdp", "--units", "tensor",
                      "--format", "json", "--out", path, "--context", "note=mine"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  std::ifstream file(path);
  EXPECT_EQ(json::parse(file), document);
  std::remove(path.c_str());
  EXPECT_EQ(document["schema_version"], 1);
  EXPECT_EQ(document["context"]["note"], "mine");
  EXPECT_EQ(document["config"]["model"]["params"], 10844160);
  EXPECT_EQ(document["config"]["units"], "tensor");
  ASSERT_EQ(document["layouts"].size(), 4u);
  EXPECT_EQ(document["layouts"][3]["strategy"], "fsdp");
  EXPECT_EQ(document["layouts"][3]["world_size"], 5);
  EXPECT_EQ(document["layouts"][3]["per_rank"].size(), 5u);
  EXPECT_EQ(document["okay"], true);
}

TEST(LayoutCommand, SaysWhatComparePredicts) {
  const std::vector<std::string> dtypes = {"--dtype", "bf16", "--reduce-dtype", "bf16"};
  std::vector<std::string> layout = {"layout", "--strategy", "zero1,fsdp", "--format", "json"};
  std::vector<std::string> plan = {"compare",  "--dry-run", "--strategy", "zero1,fsdp",
                                   "--format", "json",      "--data",     "synthetic"};
  for (auto* command : {&layout, &plan}) {
    command->insert(command->end(), dtypes.begin(), dtypes.end());
  }
  const json layouts = json::parse(run_shardbench(layout).out)["layouts"];
  const json rows = json::parse(run_shardbench(plan).out)["jobs"];
  ASSERT_EQ(layouts.size(), 2u);
  ASSERT_EQ(rows.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    constexpr double kMib = 1024 * 1024;
    EXPECT_NEAR(layouts[i]["persistent_bytes"]["max"].get<double>() / kMib,
                rows[i]["states_mib"].get<double>(), 1e-6);
    EXPECT_NEAR(layouts[i]["sent_bytes"]["mean"].get<double>() / kMib,
                rows[i]["sent_mib"].get<double>(), 1e-6);
  }
}

TEST(LayoutCommand, MarkdownAndFullTable) {
  Outcome outcome =
      run_shardbench({"layout", "--world", "2", "--format", "md", "--table", "units"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("| h.5"));
  outcome = run_shardbench({"layout", "--world", "2", "--table", "full", "--strategy", "fsdp"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("h.5.mlp.fc.weight: 0-767 768-1535"));
}

}  // namespace
}  // namespace shardbench::cli
