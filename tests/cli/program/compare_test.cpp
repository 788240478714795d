// `compare` of the built program on small jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/core/simd.h"
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

TEST(CompareProgram, EveryWidthGivesTheSameBits) {
  std::vector<std::string> hashes;
  std::vector<std::string> widths = {"auto"};
  for (const SimdWidth width : simd_widths()) widths.emplace_back(name_of(width));
  for (const std::string& width : widths) {
    const json doc = document_of(small_job({"compare", "--deterministic", "--simd", width,
                                            "--steps", "2", "--warmup", "1", "--quiet"}));
    ASSERT_EQ(doc["okay"], true) << width;
    EXPECT_EQ(doc["context"]["simd"], width == "auto" ? widths.back() : width);
    for (const json& row : doc["results"]) hashes.push_back(row["parameter_hash"]);
  }
  EXPECT_EQ(hashes, std::vector<std::string>(hashes.size(), hashes.front()));
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
  for (const char* table : {"full", "memory", "traffic", "time", "scaling", "pareto"}) {
    const Outcome outcome = run_shardbench(
        with(small_job({"compare", "--world", "1,3", "--steps", "1", "--warmup", "1", "--quiet"}),
             {"--table", table}));
    EXPECT_EQ(outcome.exit_code, 0) << table << ": " << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("fsdp     3"));
  }
}

/// A sweep of two unit policies at two world sizes, kept in a file.
class StoredSweep : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "shardbench_sweep_XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/r.json";
    ran_ = run_shardbench(
        with(small_job({"compare", "--strategy", "ddp,fsdp", "--world", "1,2", "--steps", "1",
                        "--warmup", "1", "--units", "block,tensor", "--link", "none,10Gbit,1us"}),
             {"--out", path_.c_str(), "--table", "units"}));
    ASSERT_EQ(ran_.exit_code, 0) << ran_.err;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Outcome shown(std::initializer_list<const char*> flags) const {
    return run_shardbench(with({"compare", "--from", path_}, flags));
  }

  std::string folder_, path_;
  Outcome ran_;
};

TEST_F(StoredSweep, SharesReferencesAndNamesEveryResult) {
  EXPECT_THAT(ran_.err, HasSubstr("sweep: 18 training runs of 1 + 1 steps: 2 references, 2 "
                                  "strategies x 8 combinations"));
  std::ifstream stream(path_);
  const json doc = json::parse(stream, nullptr, false);
  ASSERT_TRUE(doc.is_object());
  std::set<std::string> names;
  for (const json& result : doc["results"]) names.insert(result["name"].get<std::string>());
  EXPECT_EQ(names.size(), 16u);
  EXPECT_TRUE(names.contains("fsdp/w2/tensor/link10Gbit"));
}

TEST_F(StoredSweep, IsShownAgainWithoutARun) {
  EXPECT_EQ(shown({"--table", "units"}).out, ran_.out);
  for (const char* table :
       {"brief", "full", "memory", "traffic", "time", "units", "scaling", "pareto"}) {
    for (const char* format : {"table", "md", "csv"}) {
      const Outcome outcome = shown({"--table", table, "--format", format});
      EXPECT_EQ(outcome.exit_code, 0) << table << ' ' << format << ": " << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr("fsdp"));
    }
    EXPECT_THAT(shown({"--table", table, "--explain"}).out, HasSubstr("\nColumns "));
  }
  const Outcome page = shown({"--table", "full", "--format", "md"});
  EXPECT_THAT(page.out, HasSubstr("- command: `./shardbench compare --strategy ddp,fsdp"));
}

TEST_F(StoredSweep, RefusesOtherFlagsOtherSchemasAndFilesCutShort) {
  const auto refused = [&](std::initializer_list<const char*> flags, const char* part) {
    const Outcome outcome = shown(flags);
    EXPECT_EQ(outcome.exit_code, 2) << part;
    EXPECT_THAT(outcome.err, HasSubstr(part));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refused({"--world", "2"}, "leave --world out");
  refused({"--format", "json"}, "JSON already");
  refused({"--explain", "--format", "csv"}, "do not fit into csv");
  std::ifstream stream(path_);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::ofstream(path_) << text.substr(0, text.size() / 2);
  refused({}, "cut short");
  const std::string schema = "\"schema_version\": 1";
  text.replace(text.find(schema), schema.size(), "\"schema_version\": 7");
  std::ofstream(path_) << text;
  refused({}, "schema 7");
}

TEST(CompareProgram, FiveStrategiesAreRight) {
  const json doc = document_of(small_job({"compare", "--strategy", "ddp,zero1,zero2,zero3,fsdp",
                                          "--world", "3", "--steps", "2", "--quiet"}));
  ASSERT_TRUE(doc.is_object());
  EXPECT_EQ(doc["okay"], true);
  EXPECT_EQ(doc["results"].size(), 5u);
}

TEST(CompareProgram, UtilizationNeedsAPeak) {
  const json doc = document_of(
      small_job({"compare", "--strategy", "ddp", "--steps", "1", "--quiet", "--peak-tflops", "1"}));
  ASSERT_TRUE(doc.is_object());
  const json& row = doc["results"][0];
  EXPECT_NEAR(row["mfu"].get<double>(),
              row["flops_per_token"].get<double>() * row["tokens_per_s"].get<double>() / 2e12,
              1e-9);
}

}  // namespace
}  // namespace shardbench::cli
