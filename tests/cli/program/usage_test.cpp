// Requests that cannot be met: exit 2 and one line that names what is wrong and what is valid,
// before any rank starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

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
      {"no_model_file", {"compare", "--model", "/no/such/m.json"}, {"--model: /no/such/m.json"}},
      {"heads_of_an_mlp", {"compare", "--model", "mlp", "--heads", "4"}, {"--heads", "mlp"}},
      {"dropout_of_a_llama",
       {"compare", "--model", "llama-nano", "--dropout", "0.1"},
       {"--dropout", "llama-nano"}},
      {"untied_mlp", {"compare", "--model", "mlp", "--untied"}, {"--untied", "mlp"}},
      {"key_heads_of_a_gpt2", {"run", "--kv-heads", "2"}, {"--kv-heads", "gpt2-nano"}},
      {"key_heads_do_not_divide",
       {"compare", "--model", "llama-nano", "--kv-heads", "4"},
       {"kv_heads is 4", "nearest: 3"}},
      {"odd_heads_of_a_llama",
       {"compare", "--model", "llama-nano", "--heads", "128"},
       {"3 wide", "96 heads"}},
      {"too_many_layers", {"compare", "--layers", "999999"}, {"--layers 999999", "16384"}},
      {"planned_model_does_not_fit",
       {"compare", "--data", "synthetic", "--model", "llama3-70b"},
       {"llama3-70b", "GiB"}},
      {"unknown_strategy",
       {"compare", "--strategy", "ddp,fdsp"},
       {"fdsp", "ddp, zero1, zero2, zero3, fsdp"}},
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
      {"not_an_image",
       {"compare", "--model", "convnet", "--seq", "128"},
       {"--seq 128", "3x16x16", "nearest: 768"}},
      {"one_value_per_channel",
       {"compare", "--model", "convnet", "--layers", "5", "--batch", "1", "--data", "synthetic"},
       {"--batch 1", "nearest: 2"}},
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
      {"bad_dtype", {"compare", "--dtype", "fp8"}, {"--dtype", "fp32, bf16, fp16"}},
      {"bad_reduce_dtype", {"run", "--reduce-dtype", "int64"}, {"--reduce-dtype", "bf16"}},
      {"no_choice_of_masters", {"compare", "--master-dtype", "none"}, {"--master-dtype"}},
      {"fp16_without_a_loss_scale",
       {"compare", "--dtype", "fp16"},
       {"--dtype fp16", "--loss-scale dynamic"}},
      {"loss_scale_for_bf16",
       {"compare", "--dtype", "bf16", "--loss-scale", "dynamic"},
       {"--loss-scale", "fp16", "leave it out"}},
      {"loss_scale_for_fp32", {"run", "--loss-scale", "2"}, {"--loss-scale", "leave it out"}},
      {"loss_scale_of_zero",
       {"run", "--dtype", "fp16", "--loss-scale", "0"},
       {"--loss-scale '0'", "dynamic", "from 1 to"}},
      {"loss_scale_beyond_reason",
       {"run", "--dtype", "fp16", "--loss-scale", "1e30"},
       {"--loss-scale '1e30'", "16777216"}},
      {"loss_scale_nan", {"run", "--dtype", "fp16", "--loss-scale", "nan"}, {"'nan'"}},
      {"loss_scale_word",
       {"run", "--dtype", "fp16", "--loss-scale", "static"},
       {"'static'", "dynamic"}},
      {"bad_reshard", {"compare", "--reshard-after-forward", "maybe"}, {"true, false, auto"}},
      {"bad_link", {"compare", "--link", "fast"}, {"--link", "25Gbit,20us"}},
      {"bad_backend", {"compare", "--backend", "gloo"}, {"auto, shm, mpi, nccl"}},
      {"bad_device", {"compare", "--device", "gpu"}, {"--device", "cpu, cuda"}},
      {"device_without_nccl",
       {"compare", "--device", "cuda", "--data", "synthetic"},
       {"--device cuda", "--backend nccl"}},
      {"device_over_shared_memory",
       {"run", "--device", "cuda", "--backend", "shm", "--data", "synthetic"},
       {"--backend shm", "--backend nccl"}},
      {"in_place_on_a_device",
       {"compare", "--device", "cuda", "--backend", "nccl", "--collectives", "in-place"},
       {"--collectives in-place", "take direct"}},
      {"autotuning_on_a_device",
       {"compare", "--device", "cuda", "--backend", "nccl", "--autotune", "on"},
       {"--autotune", "--device cuda"}},
      {"links_on_a_device",
       {"compare", "--device", "cuda", "--backend", "nccl", "--link", "none,1Gbit,20us"},
       {"--link", "--device cuda"}},
      {"peers_beside_a_device",
       {"compare", "--device", "cuda", "--backend", "nccl", "--peers", "torch"},
       {"--peers", "--device cuda"}},
      {"device_without_a_launcher",
       {"compare", "--device", "cuda", "--backend", "nccl", "--data", "synthetic"},
       {"--backend nccl needs ranks that a launcher starts"}},
      {"unknown_width", {"compare", "--simd", "sse"}, {"--simd", "portable, avx2, avx512"}},
      {"unknown_width_of_collectives", {"collectives", "--simd", "512"}, {"--simd", "avx512"}},
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
      {"clipping_with_the_optimizer_in_backward",
       {"compare", "--data", "synthetic", "--strategy", "fsdp", "--optimizer-in-backward",
        "--max-norm", "1"},
       {"--optimizer-in-backward", "--max-norm"}},
      {"accumulation_with_the_optimizer_in_backward",
       {"compare", "--data", "synthetic", "--strategy", "fsdp", "--optimizer-in-backward",
        "--grad-accum", "2"},
       {"--optimizer-in-backward", "--grad-accum 2"}},
      {"ddp_with_the_optimizer_in_backward",
       {"compare", "--data", "synthetic", "--optimizer-in-backward"},
       {"ddp keeps every gradient", "zero2, zero3 or fsdp"}},
      {"fp16_with_the_optimizer_in_backward",
       {"compare", "--data", "synthetic", "--strategy", "fsdp", "--optimizer-in-backward",
        "--dtype", "fp16", "--loss-scale", "dynamic"},
       {"--loss-scale", "--dtype bf16"}},
      {"tied_sparse_embedding",
       {"compare", "--data", "synthetic", "--sparse-embedding"},
       {"--sparse-embedding needs --untied", "gpt2-nano"}},
      {"sparse_embedding_of_a_convnet",
       {"compare", "--data", "synthetic", "--model", "convnet", "--sparse-embedding"},
       {"--sparse-embedding", "no tokens"}},
      {"sparse_embedding_in_bf16",
       {"compare", "--data", "synthetic", "--untied", "--sparse-embedding", "--reduce-dtype",
        "bf16"},
       {"--sparse-embedding", "--reduce-dtype fp32"}},
      {"sparse_embedding_with_the_optimizer_in_backward",
       {"compare", "--data", "synthetic", "--untied", "--strategy", "fsdp", "--sparse-embedding",
        "--optimizer-in-backward"},
       {"--sparse-embedding", "--optimizer-in-backward", "leave one out"}},
      {"bad_collectives",
       {"compare", "--collectives", "zero-copy"},
       {"direct, staged or in-place"}},
      {"ddp_in_place",
       {"compare", "--data", "synthetic", "--collectives", "in-place"},
       {"ddp gathers no weights", "zero3 or fsdp"}},
      {"tied_head_in_parts", {"compare", "--split-head", "4"}, {"split_head is 4", "--untied"}},
      {"more_parts_than_rows",
       {"compare", "--untied", "--split-head", "300"},
       {"split_head is 300", "nearest: 256"}},
      {"split_head_of_an_mlp",
       {"compare", "--model", "mlp", "--split-head", "2"},
       {"--split-head", "mlp"}},
      {"sweep_with_an_empty_list", {"compare", "--units", ""}, {"--units", "empty"}},
      {"sweep_with_an_empty_item", {"compare", "--batch", "2,"}, {"--batch", "empty"}},
      {"sweep_with_a_value_twice", {"compare", "--world", "2,02"}, {"--world", "2", "twice"}},
      {"inter_without_hosts",
       {"compare", "--link", "1Gbit,20us", "--link-inter", "1Gbit,20us"},
       {"--link-inter", "--ranks-per-host"}},
      {"hosts_without_inter",
       {"compare", "--link", "1Gbit,20us", "--ranks-per-host", "2"},
       {"--ranks-per-host", "--link-inter"}},
      {"inter_without_link",
       {"compare", "--link-inter", "1Gbit,20us", "--ranks-per-host", "2"},
       {"--link-inter", "--link RATE,LATENCY"}},
      {"hosts_not_full",
       {"compare", "--world", "3", "--link", "10Gbit,1us", "--link-inter", "1Gbit,20us",
        "--ranks-per-host", "2"},
       {"--ranks-per-host 2", "divisor of 3"}},
      {"bad_inter",
       {"compare", "--link", "1Gbit,20us", "--link-inter", "20us", "--ranks-per-host", "2"},
       {"20us", "25Gbit,20us"}},
      {"half_a_link", {"compare", "--link", "1Gbit,20us,10Gbit"}, {"--link", "RATE,LATENCY"}},
      {"context_given_twice", {"compare", "--context", "16", "--context", "8"}, {"16 and 8"}},
      {"explain_as_csv", {"compare", "--explain", "--format", "csv"}, {"--explain", "md"}},
      {"no_stored_results", {"compare", "--from", "/no/such/r.json"}, {"/no/such/r.json"}},
      {"stored_results_cut_short", {"compare", "--from", "/dev/null"}, {"cut short"}},
      {"run_takes_no_sweep", {"run", "--units", "block,tensor"}, {"--units", "compare"}},
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
      {"layout_of_too_many_ranks", {"layout", "--world", "1-1025"}, {"--world 1025", "1024"}},
      {"layout_of_no_ranks", {"layout", "--world", "0"}, {"--world 0", "nearest: 1"}},
      {"layout_range_backwards", {"layout", "--world", "8-2"}, {"--world '8-2'", "2-8"}},
      {"layout_of_nothing", {"layout", "--world", "2,"}, {"--world '2,'", "1-1024"}},
      {"layout_unknown_strategy",
       {"layout", "--strategy", "zero4"},
       {"zero4", "ddp, zero1, zero2, zero3, fsdp"}},
      {"layout_bad_table", {"layout", "--table", "wide"}, {"--table 'wide'", "tensors"}},
      {"layout_bad_heads", {"layout", "--heads", "7"}, {"7", "384"}},
      {"layout_out_in_no_folder",
       {"layout", "--out", "/no/such/folder/l.json"},
       {"--out /no/such/folder/l.json"}},
      {"collectives_of_zero_bytes", {"collectives", "-b", "0"}, {"-b 0", "nearest: 1"}},
      {"collectives_below_an_element",
       {"collectives", "-b", "4", "-d", "fp64"},
       {"-b 4", "fp64", "nearest: 8"}},
      {"collectives_sizes_backwards",
       {"collectives", "-b", "1M", "-e", "1K"},
       {"-e 1024", "-b 1048576"}},
      {"collectives_bad_size", {"collectives", "-e", "big"}, {"-e 'big'", "16M"}},
      {"collectives_beyond_memory", {"collectives", "-e", "32T"}, {"-e", "nearest"}},
      {"collectives_bad_kind", {"collectives", "--kinds", "gather"}, {"gather", "all_gather"}},
      {"collectives_bad_type", {"collectives", "-d", "fp8"}, {"-d 'fp8'", "bf16"}},
      {"collectives_bad_op", {"collectives", "-o", "prod"}, {"-o 'prod'", "sum, avg, max"}},
      {"collectives_average_of_int64",
       {"collectives", "-d", "int64", "-o", "avg"},
       {"int64 has no average"}},
      {"collectives_root_outside", {"collectives", "--root", "2"}, {"--root 2", "nearest: 1"}},
      {"collectives_too_many_ranks", {"collectives", "--world", "65"}, {"65", "nearest: 64"}},
      {"collectives_no_iterations", {"collectives", "-n", "0"}, {"0", "nearest: 1"}},
      {"collectives_bad_link", {"collectives", "--link", "fast"}, {"--link", "25Gbit,20us"}},
      {"collectives_bad_fault", {"collectives", "--inject", "boom"}, {"--inject", "wrong@1,3"}},
      {"run_takes_one_strategy", {"run", "--strategy", "ddp,fsdp"}, {"ddp,fsdp", "compare"}},
      {"run_takes_one_world", {"run", "--world", "1,2"}, {"--world"}},
  };
  return kInputs;
}

INSTANTIATE_TEST_SUITE_P(BadInputs, Usage, ::testing::ValuesIn(bad_inputs()),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Program, AModelFileThatIsCutShortIsRefusedByNameAndPlace) {
  const std::string path = ::testing::TempDir() + "usage_test_model.json";
  std::ofstream(path) << "{\"family\": \"gpt2\",\n \"layers\": ";
  Outcome outcome = run_shardbench({"compare", "--model", path});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(path));
  EXPECT_THAT(outcome.err, HasSubstr("line 2"));
  std::ofstream(path) << "{\"base\": \"llama-nano\", \"layers\": 2}";
  outcome = run_shardbench({"compare", "--model", path, "--data", "synthetic", "--dry-run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("usage_test_model"));
  std::filesystem::remove(path);
}

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
  EXPECT_THAT(outcome.out, HasSubstr("20 training runs of 2 + 10 steps: 2 references, 3 strategies "
                                     "x 2 combinations x 3 repetitions"));
  EXPECT_THAT(outcome.out, HasSubstr("\nfsdp     4           4 "));
}

TEST(Program, ListAndDryRunInEveryFormat) {
  const std::vector<std::string> job = {"compare", "--data", "synthetic", "--world", "2,4"};
  for (const char* what : {"--list", "--dry-run"}) {
    for (const char* format : {"json", "csv", "md"}) {
      std::vector<std::string> arguments = job;
      for (const char* flag : {what, "--format", format, "--quiet"}) arguments.emplace_back(flag);
      const Outcome outcome = run_shardbench(arguments);
      EXPECT_EQ(outcome.exit_code, 0) << what << ' ' << format << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr("fsdp"));
      if (format != std::string("json")) continue;
      const nlohmann::json parsed = nlohmann::json::parse(outcome.out, nullptr, false);
      ASSERT_TRUE(parsed.is_object()) << outcome.out;
      if (what == std::string("--list")) {
        EXPECT_EQ(parsed["strategies"].size(), 6u);
      } else {
        EXPECT_EQ(parsed["jobs"].size(), 6u);
        EXPECT_EQ(parsed["runs"], 8);
      }
    }
  }
}

TEST(Program, AFullDiskIsNoSuccess) {
  RunOptions options;
  options.out = "/dev/full";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"compare", "--help"},
                                                    {"--version"},
                                                    {"compare", "--list"}}) {
    const Outcome outcome = run_shardbench(arguments, options);
    EXPECT_EQ(outcome.exit_code, 1) << arguments.back();
    EXPECT_THAT(outcome.err, HasSubstr("standard output cannot be written"));
  }
}

TEST(Program, OneRankRunsWithoutABackendAndSaysSo) {
  const Outcome outcome = run_shardbench(
      {"compare", "--data", "synthetic", "--dry-run", "--world", "1,2", "--backend", "shm"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("runs on backend local, not shm"));
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
