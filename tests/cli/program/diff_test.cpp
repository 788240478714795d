// `diff` of the built program, on files that it wrote and on files made here; and the planted
// slowness that its verdicts are checked with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/diff/documents.h"
#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using bench::document_with;
using bench::result_with;
using bench::steady;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class DiffProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "shardbench_diff_XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  /// A file with one row of ddp whose steps take `ms`.
  std::string file(const std::string& name, double ms, std::size_t repetitions = 4) const {
    return write(name, document_with({result_with("ddp", steady(repetitions, ms * 1e6))}).dump());
  }

  std::string folder_;
};

TEST_F(DiffProgram, FilesOfCompare) {
  for (const char* name : {"a.json", "b.json"}) {
    const Outcome made = run_shardbench(
        small_job({"compare", "--strategy", "ddp,fsdp", "--steps", "4", "--warmup", "1",
                   "--repetitions", "3", "--autotune", "fixed", "--quiet", "--out", path(name)}));
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  const Outcome outcome = run_shardbench({"diff", path("a.json"), path("b.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // the same experiment
  for (const char* part : {"ddp/w2/block", "fsdp/w2/block", "step_time, ms", "tokens_per_s",
                           "exposed, ms", "parameters", "same", "Summary"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  const Outcome rows = run_shardbench({"diff", path("a.json"), "--rows", "ddp,fsdp", "--format",
                                       "json", "--metric", "peak,states"});
  EXPECT_EQ(rows.exit_code, 0) << rows.err;
  const json lines = json::parse(rows.out)["lines"];
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["row"], "ddp -> fsdp");
  EXPECT_EQ(lines[1]["verdict"], "better");  // half of the states
  EXPECT_NEAR(lines[1]["change"].get<double>(), -0.5, 0.02);
}

TEST_F(DiffProgram, FilesOfRunAndPhases) {
  const Outcome made = run_shardbench(small_job(
      {"run", "--strategy", "zero3", "--steps", "30", "--quiet", "--out", path("run.json")}));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome outcome =
      run_shardbench({"diff", path("run.json"), path("run.json"), "--table", "full"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"forward, ms", "backward, ms", "optimizer, ms", "no difference"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("worse ")));
}

TEST_F(DiffProgram, FailOnWorse) {
  const std::string fast = file("fast.json", 10);
  const std::string slow = file("slow.json", 11);
  EXPECT_EQ(run_shardbench({"diff", fast, slow}).exit_code, 0);
  EXPECT_EQ(run_shardbench({"diff", fast, slow, "--fail-on-worse"}).exit_code, 1);
  EXPECT_EQ(run_shardbench({"diff", fast, slow, "--fail-on-worse=5"}).exit_code, 1);
  EXPECT_EQ(run_shardbench({"diff", fast, slow, "--fail-on-worse=15"}).exit_code, 0);
  EXPECT_EQ(run_shardbench({"diff", slow, fast, "--fail-on-worse"}).exit_code, 0);
  EXPECT_EQ(run_shardbench({"diff", "--fail-on-worse", "--min-change", "20", fast, slow}).exit_code,
            0);
}

TEST_F(DiffProgram, FormatsAndOut) {
  const std::string a = file("a.json", 10);
  const std::string b = file("b.json", 11);
  Outcome outcome = run_shardbench({"diff", a, b, "--format", "csv", "--metric", "step_time"});
  EXPECT_EQ(outcome.out.rfind("row,metric,unit,old,new,", 0), 0u);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  outcome = run_shardbench({"diff", a, b, "--format", "md", "--out", path("diff.json")});
  EXPECT_THAT(outcome.out, HasSubstr("| verdict |"));
  const json document = json::parse(std::ifstream(path("diff.json")));
  EXPECT_EQ(document["lines"][0]["metric"], "step_time");
  EXPECT_EQ(document["lines"][0]["verdict"], "worse");
}

TEST_F(DiffProgram, ListsMeasuredInTurns) {
  const double drift[] = {1, 1.4, 1.2, 1.7};
  std::string before;
  std::string after;
  for (int i = 0; i < 4; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    before += comma + file("a" + std::to_string(i), 10 * drift[i], 1);
    after += comma + file("b" + std::to_string(i), (10.5 + 0.01 * i) * drift[i], 1);
  }
  const Outcome outcome =
      run_shardbench({"diff", before, after, "--format", "json", "--metric", "step_time"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json line = json::parse(outcome.out)["lines"][0];
  EXPECT_EQ(line["resampled"], "pair of repetitions");
  EXPECT_EQ(line["verdict"], "worse");
}

TEST_F(DiffProgram, WarnsWhenItIsAnotherExperiment) {
  json other = document_with({result_with("ddp", steady(4, 10e6))});
  other["config"]["steps"] = 99;
  const std::string b = write("b.json", other.dump());
  const std::string a = file("a.json", 10);
  EXPECT_THAT(run_shardbench({"diff", a, b}).err,
              HasSubstr("warning: not the same experiment (old, new): config.steps: 10, 99"));
  EXPECT_EQ(run_shardbench({"diff", a, b, "--quiet"}).err, "");
}

TEST_F(DiffProgram, RefusedInOneLine) {
  const std::string good = file("good.json", 10);
  const std::string text = document_with({result_with("fsdp", steady(4, 10e6))}).dump();
  const std::string other = write("other.json", text);
  const std::string cut = write("cut.json", text.substr(0, text.size() / 2));
  const std::string notes = write("notes.txt", "ten milliseconds\n");
  json future = json::parse(text);
  future["schema_version"] = 7;
  const std::string newer = write("newer.json", future.dump());
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{good}, "two result files"},
      {{good, path("none.json")}, "none.json: cannot be read"},
      {{good, cut}, "cut.json: cut short"},
      {{notes, good}, "notes.txt: not JSON"},
      {{good, newer}, "newer.json: schema_version 7"},
      {{good, folder_}, "a folder"},
      {{good, other}, "no row in common"},
      {{good, good + ","}, "an item is empty"},
      {{good + "," + other, good}, "other.json: has fsdp/w2/block"},
      {{good, good, "--metric", "speed"}, "--metric 'speed'"},
      {{good, good, "--metric", "forward,evaluation"}, "evaluation"},
      {{good, good, "--rows", "ddp"}, "OLD,NEW"},
      {{good, good, "--rows", "ddp,zero3"}, "no such row"},
      {{good, good, "--strategy", "zero3"}, "--strategy zero3"},
      {{good, good, "--format", "xml"}, "table, json, csv, md"},
      {{good, good, "--fail-on-worse=fast"}, "--fail-on-worse 'fast'"},
      {{good, good, "--min-change", "-1"}, "--min-change"},
      {{good, good, "--out", "/no/such/folder/d.json"}, "--out /no/such/folder"},
      {{}, "files"},
  };
  for (const auto& [arguments, part] : cases) {
    std::vector<std::string> all = {"diff"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_shardbench(all);
    EXPECT_EQ(outcome.exit_code, 2) << part;
    EXPECT_EQ(outcome.out, "") << part;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
}

// Ten times the step before: most of every step is then spent where the rank sleeps.
TEST_F(DiffProgram, PlantedSlownessIsInItsPhaseAndNotWrong) {
  for (const char* phase : {"forward", "backward", "optimizer"}) {
    const Outcome outcome = run_shardbench(small_job(
        {"compare", "--strategy", "ddp,fsdp", "--world", "1", "--steps", "5", "--warmup", "2",
         "--quiet", "--format", "json", "--inject", std::string("slow:1000@0,0,") + phase}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json document = json::parse(outcome.out);
    EXPECT_EQ(document["config"]["inject"], std::string("slow:1000@0,0,") + phase);
    for (const json& row : document["results"]) {
      EXPECT_EQ(row["parity"]["ok"], true);
      EXPECT_GT(row["phase_time_ns"][phase].get<double>(),
                0.5 * row["step_time_ns"]["median"].get<double>())
          << phase << " of " << row["name"];
    }
  }
}

TEST_F(DiffProgram, PlantedSlownessInOneStep) {
  const Outcome outcome = run_shardbench(
      small_job({"compare", "--strategy", "fsdp", "--steps", "3", "--warmup", "1", "--quiet",
                 "--format", "json", "--inject", "slow:10000@1,3,forward"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json row = json::parse(outcome.out)["results"][0];
  EXPECT_EQ(row["parity"]["ok"], true);
  // Steps 2, 3 and 4 are measured: the sleep stands in the second of them.
  const json times = row["by_repetition"][0]["times"];
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(*std::max_element(times.begin(), times.end()), times[1]);
}

}  // namespace
}  // namespace shardbench::cli
