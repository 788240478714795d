// The collectives command of the built program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/core/simd.h"
#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"collectives", "-b", "64", "-e", "512",
                                        "-n",          "3",  "-w", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CollectivesCommand, PrintsOneTablePerKind) {
  const Outcome outcome = run_shardbench(tiny({"--quiet"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* part :
       {"# all_reduce\n", "# all_gather\n", "# reduce_scatter\n", "# broadcast\n", "# reduce\n",
        "# Out of bounds values : 0 OK", "# Avg bus bandwidth : ", "backend shm, 2 ranks"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_EQ(children_left(), 0);
}

TEST(CollectivesCommand, JsonHasContextAndRows) {
  const std::string path = ::testing::TempDir() + "collectives.json";
  const Outcome outcome = run_shardbench(
      tiny({"--kinds", "all_gather,reduce", "-d", "bf16,int64", "-o", "max", "--world", "3",
            "--root", "2", "--memory", "plain", "--format", "json", "--out", path, "--quiet"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  std::ifstream file(path);
  EXPECT_EQ(json::parse(file), document);
  std::remove(path.c_str());
  EXPECT_EQ(document["schema_version"], 1);
  EXPECT_EQ(document["context"]["backend"], "shm");
  EXPECT_EQ(document["config"]["memory"], "plain");
  EXPECT_EQ(document["devices"].size(), 3u);
  ASSERT_EQ(document["collectives"].size(), 8u);
  const json& row = document["collectives"][7];
  EXPECT_EQ(row["op"], "reduce");
  EXPECT_EQ(row["type"], "int64");
  EXPECT_EQ(row["redop"], "max");
  EXPECT_EQ(row["root"], 2);
  EXPECT_EQ(row["size"], 512);
  EXPECT_EQ(row["in_place"]["nwrong"], 0);
  EXPECT_EQ(document["okay"], true);
}

TEST(CollectivesCommand, EveryWidthIsExactAndNamed) {
  for (const SimdWidth width : simd_widths()) {
    const std::string name(name_of(width));
    const Outcome outcome = run_shardbench(
        tiny({"--simd", name, "-d", "fp32,bf16", "-o", "avg", "--format", "json", "--quiet"}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const json document = json::parse(outcome.out);
    EXPECT_EQ(document["context"]["simd"], name);
    EXPECT_EQ(document["okay"], true);
  }
}

TEST(CollectivesCommand, AWrongElementGivesOneAndTheCount) {
  const Outcome outcome =
      run_shardbench(tiny({"--kinds", "all_reduce", "--inject", "wrong@1,2", "--quiet"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 2 FAILED"));
  EXPECT_THAT(outcome.err, HasSubstr("2 elements are wrong"));
}

TEST(CollectivesCommand, ALostRankGivesThreeAndLeavesNobody) {
  const Outcome outcome =
      run_shardbench(tiny({"--inject", "kill@1,3", "--format", "json", "--quiet"}));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.err, HasSubstr("signal 9"));
  EXPECT_EQ(json::parse(outcome.out)["okay"], false);
  EXPECT_EQ(children_left(), 0);
}

TEST(CollectivesCommand, CsvAndMarkdown) {
  const Outcome csv = run_shardbench(tiny({"--format", "csv", "--world", "1", "--quiet"}));
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(csv.out.rfind("op,size,count,type,redop,root,", 0), 0u);
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 11);
  const Outcome md = run_shardbench(tiny({"--format", "md", "--world", "1", "--quiet"}));
  EXPECT_THAT(md.out, HasSubstr("| reduce_scatter"));
}

TEST(CollectivesCommand, WarnsWhenRanksShareCores) {
  const Outcome outcome = run_shardbench({"collectives", "-b", "64", "-e", "64", "-n", "1", "-w",
                                          "0", "--world", "64", "--kinds", "broadcast"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: 64 ranks on"));
}

}  // namespace
}  // namespace shardbench::cli
