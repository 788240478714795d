// `compare` of the built program on small jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> arguments,
                              std::initializer_list<const char*> more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json document_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run_shardbench(with(arguments, {"--format", "json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST(CompareProgram, DefaultScreenOnSmallJob) {
  const Outcome outcome = run_shardbench(small_job({"compare", "--steps", "3", "--warmup", "1"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part :
       {"\nddp ", "\nzero3 ", "\nfsdp ", "\nResult   ", "\nMemory   ", "\nTraffic  ", "\nTime     ",
        "\nBalance  ", "\nResults  ", "\nNext  "}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("WRONG")));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    // Commands that repeat a long command line may be longer; the table never is.
    const bool of_the_table = line.rfind("ddp", 0) == 0 || line.rfind("strategy", 0) == 0;
    EXPECT_TRUE(!of_the_table || line.size() <= 90u) << line;
  }
  EXPECT_THAT(outcome.err, HasSubstr("machine: "));
  EXPECT_EQ(children_left(), 0);
}

class CompareWorlds : public ::testing::TestWithParam<int> {};

TEST_P(CompareWorlds, EveryRowIsRightAndEveryByteIsCounted) {
  const std::string world = std::to_string(GetParam());
  const json doc = document_of(
      small_job({"compare", "--world", world, "--steps", "2", "--warmup", "1", "--quiet"}));
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["okay"], true);
  ASSERT_EQ(doc["results"].size(), 3u);
  const std::string hash = doc["results"][0]["parameter_hash"];
  for (const json& row : doc["results"]) {
    EXPECT_EQ(row["parity"]["bit_equal"], true) << row["parity"].dump();
    EXPECT_EQ(row["parameter_hash"], hash);
    EXPECT_EQ(row["losses"].size(), 3u);
    EXPECT_EQ(row["world_size"], GetParam());
    EXPECT_EQ(row["per_rank"].size(), static_cast<std::size_t>(GetParam()));
    for (const json& entry : row["traffic"]) {
      if (entry["phase"] == "metrics") continue;
      EXPECT_EQ(entry["algo_bytes"], entry["formula_bytes"]) << entry.dump();
      EXPECT_EQ(entry["algo_bytes"], entry["wire_bytes"]) << entry.dump();
    }
    for (const json& rank : row["per_rank"]) {
      EXPECT_EQ(rank["persistent_bytes"].get<std::int64_t>(),
                rank["formula_persistent_bytes"].get<std::int64_t>() +
                    rank["padding_bytes"].get<std::int64_t>())
          << rank.dump();
      std::int64_t sum = 0;
      for (const json& part : rank["at_peak"]) sum += part.get<std::int64_t>();
      EXPECT_EQ(sum, rank["peak_bytes"].get<std::int64_t>());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(WorldSizes, CompareWorlds, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST(CompareProgram, TwoDeterministicInvocationsAgree) {
  const std::vector<std::string> job =
      small_job({"compare", "--deterministic", "--steps", "2", "--warmup", "1", "--quiet"});
  const json first = document_of(job);
  const json second = document_of(job);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first["results"][i]["parameter_hash"], second["results"][i]["parameter_hash"]);
    EXPECT_EQ(first["results"][i]["losses"], second["results"][i]["losses"]);
  }
}

TEST(CompareProgram, OptionsKeepTheAnswerRight) {
  for (const auto& options :
       std::vector<std::vector<std::string>>{{"--units", "tensor"},
                                             {"--units", "whole"},
                                             {"--units", "size:2000"},
                                             {"--reshard-after-forward", "false"},
                                             {"--reshard-after-forward", "auto"},
                                             {"--prefetch", "0"},
                                             {"--prefetch", "3"},
                                             {"--grad-accum", "3"},
                                             {"--max-norm", "0.1"},
                                             {"--optimizer", "sgd"},
                                             {"--untied"},
                                             {"--dropout", "0.2"},
                                             {"--bucket-cap-mib", "0.001"},
                                             {"--link", "10Gbit,1us"}}) {
    std::vector<std::string> job =
        small_job({"compare", "--world", "3", "--steps", "2", "--warmup", "1", "--quiet"});
    job.insert(job.end(), options.begin(), options.end());
    const json doc = document_of(job);
    ASSERT_TRUE(doc.is_object()) << options.front();
    EXPECT_EQ(doc["okay"], true) << options.front() << ' ' << options.back();
  }
}

TEST(CompareProgram, OutHoldsTheDocumentAndTablesGoToStdout) {
  std::string folder = (std::filesystem::temp_directory_path() / "shardbench_res_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/r.json";
  const Outcome outcome = run_shardbench(
      with(small_job({"compare", "--steps", "2", "--warmup", "0", "--repetitions", "2"}),
           {"--out", path.c_str(), "--context", "purpose=test", "--table", "traffic", "--quiet"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("reduce_scatter"));
  std::ifstream stream(path);
  const json doc = json::parse(stream, nullptr, false);
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["context"]["purpose"], "test");
  EXPECT_EQ(doc["results"][0]["run_type"], "aggregate");
  EXPECT_EQ(doc["results"][0]["step_time_ns"]["times"].size(), 4u);
  std::filesystem::remove_all(folder);
}

TEST(CompareProgram, EveryTableRenders) {
  for (const char* table : {"full", "memory", "traffic", "time"}) {
    const Outcome outcome = run_shardbench(
        with(small_job({"compare", "--world", "1,3", "--steps", "1", "--warmup", "1", "--quiet"}),
             {"--table", table}));
    EXPECT_EQ(outcome.exit_code, 0) << table << ": " << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("fsdp     3"));
  }
}

}  // namespace
}  // namespace shardbench::cli
