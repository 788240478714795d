// Requests that cannot be met: exit 2 and one line that names what is wrong and what is valid,
// before any rank starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using ::testing::HasSubstr;

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> parts;  ///< that the line must have
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

class Usage : public ::testing::TestWithParam<BadInput> {};

TEST_P(Usage, OneLineAndExitCodeTwo) {
  // The default corpus must not be found, wherever the program was built.
  RunOptions options;
  options.environment = {"SHARDBENCH_DATA_DIR=/no/such/folder"};
  const Outcome outcome = run_shardbench(GetParam().arguments, options);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const std::string& part : GetParam().parts) EXPECT_THAT(outcome.err, HasSubstr(part));
}

const std::vector<BadInput>& bad_inputs() {
  static const std::vector<BadInput> kInputs = {
      {"no_command", {}, {"compare", "run"}},
      {"unknown_command", {"compar"}, {"compar", "did you mean 'compare'"}},
      {"unknown_flag", {"compare", "--stratgy", "ddp"}, {"--stratgy", "--strategy"}},
      {"flag_before_command", {"--model", "gpt2"}, {"--model", "compare"}},
      {"stray_argument", {"compare", "fsdp"}, {"fsdp"}},
      {"missing_value", {"compare", "--batch"}, {"--batch", "needs a value"}},
      {"given_twice", {"compare", "--batch", "1", "--batch", "2"}, {"--batch", "more than once"}},
      {"value_for_a_switch", {"compare", "--quiet=3"}, {"--quiet", "no value"}},
      {"unknown_model", {"compare", "--model", "gpt4"}, {"gpt4", "gpt2-nano", "mlp"}},
      {"unknown_strategy", {"compare", "--strategy", "ddp,fdsp"}, {"fdsp", "ddp, zero3, fsdp"}},
      {"repeated_strategy", {"compare", "--strategy", "ddp,ddp"}, {"ddp", "twice"}},
      {"empty_strategy", {"compare", "--strategy", "ddp,"}, {"empty"}},
      {"no_ranks", {"compare", "--world", "0"}, {"--world 0", "1 to 64", "nearest: 1"}},
      {"too_many_ranks", {"compare", "--world", "2,65"}, {"65", "nearest: 64"}},
      {"negative_ranks", {"compare", "--world", "-2"}, {"-2", "nearest: 1"}},
      {"fraction_of_a_rank", {"compare", "--world", "1.5"}, {"1.5", "whole number"}},
      {"negative_batch", {"compare", "--batch", "-1"}, {"--batch -1", "at least 1"}},
      {"zero_steps", {"compare", "--steps", "0"}, {"--steps 0", "nearest: 1"}},
      {"number_too_large", {"compare", "--seq", "99999999999999999999"}, {"--seq", "nearest"}},
      {"not_a_number", {"compare", "--lr", "fast"}, {"--lr 'fast'", "not a number"}},
      {"not_finite", {"compare", "--lr", "nan"}, {"--lr 'nan'"}},
      {"beyond_the_context", {"compare", "--seq", "512"}, {"512", "nearest: 256"}},
      {"heads_do_not_divide", {"compare", "--heads", "7"}, {"7", "384"}},
      {"no_layers", {"compare", "--layers", "0"}, {"--layers 0"}},
      {"indivisible_batch",
       {"compare", "--global-batch", "7", "--world", "2"},
       {"--global-batch 7", "nearest: 6 or 8"}},
      {"two_batches", {"compare", "--global-batch", "8", "--batch", "4"}, {"leave one out"}},
      {"unknown_units", {"compare", "--units", "blocks"}, {"blocks", "class:NAME"}},
      {"units_match_nothing",
       {"compare", "--units", "class:Conv"},
       {"class:Conv", "TransformerBlock"}},
      {"bad_reshard", {"compare", "--reshard-after-forward", "maybe"}, {"true, false, auto"}},
      {"bad_link", {"compare", "--link", "fast"}, {"--link", "25Gbit,20us"}},
      {"bad_backend", {"compare", "--backend", "mpi"}, {"auto, shm"}},
      {"bad_injection", {"compare", "--inject", "boom"}, {"--inject", "kill@1,3,backward"}},
      {"injection_beyond_steps",
       {"compare", "--data", "synthetic", "--inject", "throw@1,99,forward"},
       {"step 99", "12"}},
      {"timeout_too_short",
       {"compare", "--data", "synthetic", "--timeout", "0.0001"},
       {"--timeout", "0.001"}},
      {"model_too_large",
       {"compare", "--data", "synthetic", "--model", "gpt2-xl", "--hidden", "64000"},
       {"gpt2-xl", "GiB"}},
      {"injection_beyond_ranks",
       {"compare", "--data", "synthetic", "--inject", "throw@2,1,forward"},
       {"--inject", "2"}},
      {"bad_table", {"compare", "--table", "wide"}, {"brief", "traffic"}},
      {"bad_format", {"compare", "--format", "jsn"}, {"json"}},
      {"missing_data", {"compare", "--data", "/no/such/text"}, {"/no/such/text"}},
      {"missing_corpus", {"compare"}, {"/no/such/folder/shakespeare.txt", "--data"}},
      {"short_text", {"compare", "--data", "/proc/sys/kernel/ostype"}, {"/proc/sys/kernel/ostype"}},
      {"out_in_no_folder",
       {"compare", "--data", "synthetic", "--out", "/no/such/folder/r.json"},
       {"--out /no/such/folder/r.json"}},
      {"out_is_a_folder", {"compare", "--data", "synthetic", "--out", "/tmp"}, {"--out /tmp"}},
      {"bad_note", {"compare", "--context", "=x"}, {"KEY=VALUE"}},
      {"run_takes_one_strategy", {"run", "--strategy", "ddp,fsdp"}, {"ddp,fsdp", "compare"}},
      {"run_takes_one_world", {"run", "--world", "1,2"}, {"--world"}},
  };
  return kInputs;
}

INSTANTIATE_TEST_SUITE_P(BadInputs, Usage, ::testing::ValuesIn(bad_inputs()),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Program, HelpNamesCommandsAndFlags) {
  Outcome outcome = run_shardbench({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("compare"));
  EXPECT_THAT(outcome.out, HasSubstr("Exit codes"));
  outcome = run_shardbench({"compare", "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* flag : {"--model", "--strategy", "--world", "--nproc", "--units", "--wrap",
                           "--link", "--table", "--out", "--dry-run"}) {
    EXPECT_THAT(outcome.out, HasSubstr(flag));
  }
  EXPECT_EQ(outcome.err, "");
}

TEST(Program, Version) {
  const Outcome outcome = run_shardbench({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out.rfind("shardbench ", 0), 0u);
  EXPECT_THAT(outcome.out, HasSubstr("LibTorch"));
}

TEST(Program, ListNeedsNoData) {
  const Outcome outcome = run_shardbench({"compare", "--list"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("10,844,160"));
  EXPECT_THAT(outcome.out, HasSubstr("124,439,808"));
  for (const char* name : {"ddp", "zero3", "fsdp", "class:NAME"}) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
}

TEST(Program, DryRunSaysWhatWouldRunAndStartsNothing) {
  const Outcome outcome = run_shardbench({"compare", "--data", "synthetic", "--dry-run", "--world",
                                          "2,4", "--repetitions", "3", "--global-batch", "16"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("20 training runs of 2 + 10 steps"));
  EXPECT_THAT(outcome.out, HasSubstr("W=4  batch 4 per rank"));
}

TEST(Program, WarnsAboutCrowdedCoresAndOneBigUnit) {
  const Outcome outcome = run_shardbench({"compare", "--data", "synthetic", "--dry-run", "--world",
                                          "64", "--threads", "64", "--units", "whole"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: 64 ranks x 64 threads"));
  EXPECT_THAT(outcome.err, HasSubstr("holds 100 % of the weights"));
  const Outcome quiet = run_shardbench({"compare", "--data", "synthetic", "--dry-run", "--world",
                                        "64", "--units", "whole", "--quiet"});
  EXPECT_EQ(quiet.err, "");
}

}  // namespace
}  // namespace shardbench::cli
