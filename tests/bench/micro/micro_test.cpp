// Every micro-benchmark program runs and writes JSON with our context. Times are not looked at.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace shardbench::micro {
namespace {

using nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;
};

Outcome run(const std::string& command) {
  Outcome result;
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.out.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

struct Program {
  std::string name;
  std::string path;
  std::string filter;             ///< a few benchmarks of each kind, the small ones
  std::vector<std::string> some;  ///< names that must be among the results
  std::string counter;
  bool torch;
};

std::vector<Program> programs() {
  std::vector<Program> all = {
      {"collectives",
       SHARDBENCH_MICRO_COLLECTIVES,
       "bytes:4096/",
       {"all_reduce/fp32/W:2/bytes:4096/manual_time", "all_gather/bf16/W:4/bytes:4096/manual_time",
        "reduce_scatter/fp32/W:4/bytes:4096/manual_time",
        "broadcast/fp32/W:2/bytes:4096/manual_time", "reduce/bf16/W:2/bytes:4096/manual_time"},
       "bus_bytes_per_second",
       false},
      {"reductions",
       SHARDBENCH_MICRO_REDUCTIONS,
       "bytes:16384",
       {"sum/fp32/W:2/bytes:16384", "average_accumulate/bf16/W:8/bytes:16384",
        "memcpy/bytes:16384"},
       "bytes_per_second",
       false}};
#ifdef SHARDBENCH_MICRO_OPS
  all.push_back(
      {"ops",
       SHARDBENCH_MICRO_OPS,
       "512x384x384|rows:512|batch",
       {"linear/forward_bias/512x384x384/aten", "linear/weight_grad_accumulate/512x384x384/aten",
        "layer_norm_backward/rows:512/width:384", "gelu/rows:512/width:1536",
        "attention/batch:4/seq:128/heads:6/size:64", "cross_entropy/rows:512/classes:256",
        "embedding/rows:512/vocab:256/width:384"},
       "",
       true});
  all.push_back({"optimizer",
                 SHARDBENCH_MICRO_OPTIMIZER,
                 "elements:4096|matrices:48",
                 {"adamw/elements:4096", "sgd_step/matrices:48/rows:96/width:384",
                  "gradient_norm/matrices:48/rows:96/width:384"},
                 "elements_per_second",
                 true});
  all.push_back({"allocator",
                 SHARDBENCH_MICRO_ALLOCATOR,
                 "bytes:(256|65536)$",
                 {"cached/bytes:256", "uncached/bytes:65536", "malloc/bytes:256"},
                 "",
                 true});
#endif
  return all;
}

class Micro : public ::testing::TestWithParam<Program> {};

TEST_P(Micro, RunsAndSaysWhereItRan) {
  const Program& program = GetParam();
  const Outcome result =
      run(fmt::format("'{}' '--benchmark_filter={}' --benchmark_min_time=0.0001 "
                      "--benchmark_format=json",
                      program.path, program.filter));
  ASSERT_EQ(result.exit_code, 0) << result.out;
  const json document = json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded()) << result.out;
  for (const char* key : {"cpu_model", "usable_cpus", "memory_bytes", "kernel", "torch_version",
                          "shardbench_version", "git_sha", "build_type", "compiler"}) {
    ASSERT_TRUE(document["context"].contains(key)) << key;
    EXPECT_NE(document["context"][key], "") << key;
  }
  EXPECT_EQ(document["context"]["torch_version"] != "none", program.torch);
  std::vector<std::string> names;
  for (const json& benchmark : document["benchmarks"]) {
    names.push_back(benchmark["name"]);
    EXPECT_FALSE(benchmark.value("error_occurred", false)) << benchmark;
    EXPECT_GT(benchmark["iterations"].get<std::int64_t>(), 0) << benchmark;
    if (!program.counter.empty() && names.back().rfind("malloc", 0) != 0) {
      EXPECT_GT(benchmark[program.counter].get<double>(), 0) << benchmark;
    }
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf(program.some));
}

TEST_P(Micro, AnUnknownFlagIsRefused) {
  EXPECT_EQ(run(fmt::format("'{}' --nonsense", GetParam().path)).exit_code, 2);
}

INSTANTIATE_TEST_SUITE_P(Programs, Micro, ::testing::ValuesIn(programs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace shardbench::micro
