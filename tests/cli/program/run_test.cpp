// `run` of the built program on small jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Text : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "shardbench_text_XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/text.txt";
    std::ofstream text(path_);
    for (int i = 0; i < 200; ++i) text << "the quick brown fox " << i % 7 << "\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> job(const std::string& strategy) const {
    return {"run", "--strategy", strategy, "--layers", "1",    "--heads", "2", "--hidden",
            "32",  "--context",  "16",     "--seq",    "16",   "--batch", "4", "--data",
            path_, "--steps",    "12",     "--lr",     "0.01", "--quiet"};
  }
  std::string folder_, path_;
};

TEST_F(Text, StepLinesAndTheHeldOutTenth) {
  std::vector<std::string> arguments = job("fsdp");
  for (const char* flag : {"--log-every", "4", "--eval-every", "6"}) arguments.emplace_back(flag);
  const Outcome outcome = run_shardbench(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"grad_norm", "\n      1 ", "\n      4 ", "\n      8 ", "\n     12 ",
                           "\n      6  held out ", "\n     12  held out ", "bigram baseline"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_EQ(children_left(), 0);
}

TEST_F(Text, StrategiesLoseTheSame) {
  json first;
  for (const char* strategy : {"ddp", "zero3", "fsdp"}) {
    std::vector<std::string> arguments = job(strategy);
    for (const char* flag : {"--format", "json"}) arguments.emplace_back(flag);
    const Outcome outcome = run_shardbench(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json row = json::parse(outcome.out)["results"][0];
    EXPECT_EQ(row["losses"].size(), 12u);
    EXPECT_LT(row["losses"].back().get<double>(), row["losses"].front().get<double>());
    EXPECT_GT(row["evaluation"]["bigram_baseline"].get<double>(), 0);
    if (first.is_null()) first = row;
    EXPECT_EQ(row["losses"], first["losses"]) << strategy;
    EXPECT_EQ(row["evaluation"]["losses"], first["evaluation"]["losses"]) << strategy;
  }
}

TEST_F(Text, TooShortForOneSequenceIsRefused) {
  std::ofstream(path_) << "short";
  const Outcome outcome = run_shardbench(job("ddp"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("text.txt"));
}

TEST_F(Text, AFailedRankEndsTheRun) {
  std::vector<std::string> arguments = job("zero3");
  for (const char* flag : {"--inject", "kill@1,3,backward"}) arguments.emplace_back(flag);
  const Outcome outcome = run_shardbench(arguments);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_EQ(children_left(), 0);
}

}  // namespace
}  // namespace shardbench::cli
