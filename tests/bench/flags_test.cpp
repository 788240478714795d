#include "bench/cli/flags.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "bench/cli/screen.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::cli {
namespace {

Flags parse(std::vector<std::string> args) {
  CLI::App app;
  Flags flags;
  add_model_flags(app, flags);
  add_work_flags(app, flags);
  add_strategy_flags(app, flags);
  add_measurement_flags(app, flags);
  add_output_flags(app, flags);
  std::reverse(args.begin(), args.end());
  app.parse(args);
  return flags;
}

bench::Request request_of(std::vector<std::string> args) {
  Flags flags = parse(std::move(args));
  flags.data = "synthetic";
  return make_request(flags, bench::fake_registry(), "/opt/x/bin/shardbench");
}

std::string refusal(const std::vector<std::string>& args) {
  try {
    request_of(args);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Flags, Defaults) {
  const bench::Request request = request_of({});
  EXPECT_EQ(request.base.model.name, "gpt2-nano");
  EXPECT_EQ(request.strategies, (std::vector<std::string>{"ddp", "zero3", "fsdp"}));
  EXPECT_EQ(request.worlds, (std::vector<int>{2}));
  EXPECT_EQ(request.base.batch, 4);
  EXPECT_EQ(request.base.seq, 128);
  EXPECT_EQ(request.base.warmup, 2);
  EXPECT_EQ(request.base.steps, 10);
  EXPECT_EQ(request.base.threads, 1);
  EXPECT_EQ(request.base.options.units.to_string(), "block");
  EXPECT_EQ(request.base.options.reshard_after_forward, train::Reshard::kTrue);
  EXPECT_FALSE(request.base.link.has_value());
}

TEST(Flags, ReachTheConfig) {
  const bench::Request request = request_of({"--layers",  "3",
                                             "--heads",   "4",
                                             "--hidden",  "64",
                                             "--vocab",   "300",
                                             "--context", "32",
                                             "--untied",  "--dropout",
                                             "0.1",       "--batch",
                                             "7",         "--seq",
                                             "16",        "--grad-accum",
                                             "5",         "--max-norm",
                                             "1.5",       "--lr",
                                             "0.01",      "--optimizer",
                                             "sgd",       "--weight-decay",
                                             "0",         "--wrap",
                                             "tensor",    "--reshard-after-forward",
                                             "auto",      "--bucket-cap-mib",
                                             "0.5",       "--seed",
                                             "9",         "--deterministic",
                                             "--threads", "2",
                                             "--timeout", "5",
                                             "--inject",  "kill@1,3,backward"});
  const train::RunConfig& base = request.base;
  EXPECT_EQ(base.model.layers, 3);
  EXPECT_EQ(base.model.heads, 4);
  EXPECT_EQ(base.model.hidden, 64);
  EXPECT_EQ(base.model.vocab, 300);
  EXPECT_EQ(base.model.context, 32);
  EXPECT_FALSE(base.model.tied);
  EXPECT_EQ(base.model.dropout, 0.1);
  EXPECT_EQ(base.batch, 7);
  EXPECT_EQ(base.seq, 16);
  EXPECT_EQ(base.accumulation, 5);
  EXPECT_EQ(base.max_norm, 1.5);
  EXPECT_EQ(base.optimizer.lr, 0.01);
  EXPECT_EQ(base.optimizer.kind, train::OptimizerKind::kSgd);
  EXPECT_EQ(base.optimizer.weight_decay, 0);
  EXPECT_EQ(base.options.units.kind, sharding::UnitPolicy::Kind::kTensor);
  EXPECT_EQ(base.options.reshard_after_forward, train::Reshard::kAuto);
  EXPECT_EQ(base.options.bucket_cap_mib, 0.5);
  EXPECT_EQ(base.seed, 9u);
  EXPECT_TRUE(base.deterministic);
  EXPECT_EQ(base.threads, 2);
  EXPECT_EQ(base.timeout_s, 5);
  ASSERT_TRUE(base.inject.has_value());
  EXPECT_EQ(base.inject->rank, 1);
}

TEST(Flags, PrefetchSetsBothAndTheNarrowerFlagWins) {
  EXPECT_EQ(parse({"--prefetch", "3"}).options.forward_prefetch, 3);
  EXPECT_EQ(parse({"--prefetch", "3"}).options.backward_prefetch, 3);
  const Flags flags = parse({"--forward-prefetch", "0", "--prefetch", "3"});
  EXPECT_EQ(flags.options.forward_prefetch, 0);
  EXPECT_EQ(flags.options.backward_prefetch, 3);
}

TEST(Flags, ListsAreSweeps) {
  const bench::Request request =
      request_of({"--batch", "2,4", "--units", "block,size:10k", "--prefetch", "0,1,2", "--link",
                  "none,10Gbit,20us,1GB/s,1ms", "--bucket-cap-mib", "0.5,25"});
  EXPECT_EQ(request.sweep.batches, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(request.base.batch, 2);
  ASSERT_EQ(request.sweep.units.size(), 2u);
  EXPECT_EQ(request.sweep.units[1].min_parameters, 10'000);
  EXPECT_EQ(request.sweep.prefetches, (std::vector<int>{0, 1, 2}));
  ASSERT_EQ(request.sweep.links.size(), 3u);
  EXPECT_FALSE(request.sweep.links[0].has_value());
  EXPECT_FALSE(request.base.link.has_value());
  EXPECT_EQ(request.sweep.links[2]->bytes_per_second, 1e9);
  EXPECT_EQ(request.sweep.bucket_caps_mib, (std::vector<double>{0.5, 25}));
  EXPECT_EQ(request.base.options.bucket_cap_mib, 0.5);
  EXPECT_EQ(bench::blocks_of(request).size(), 2u * 2 * 3 * 3 * 2);
}

TEST(Flags, HostsStandAroundEveryLink) {
  const bench::Request request = request_of({"--link", "none,10Gbit,20us,1GB/s,1ms", "--link-inter",
                                             "1Gbit,50us", "--ranks-per-host", "2"});
  EXPECT_FALSE(request.sweep.links[0].has_value());
  for (const std::size_t i : {1u, 2u}) {
    ASSERT_TRUE(request.sweep.links[i]->hosts.has_value());
    EXPECT_EQ(request.sweep.links[i]->hosts->ranks_per_host, 2);
    EXPECT_EQ(request.sweep.links[i]->hosts->speed.bytes_per_second, 1.25e8);
  }
}

TEST(Flags, CommThreadNeedsASecondCore) {
  EXPECT_FALSE(request_of({}).base.comm_thread);
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  if (CPU_COUNT(&all) > 1) {
    EXPECT_TRUE(request_of({"--comm-thread"}).base.comm_thread);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  try {
    request_of({"--comm-thread"});
    ADD_FAILURE() << "accepted on one core";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--comm-thread"), std::string::npos);
  }
  sched_setaffinity(0, sizeof(all), &all);
}

TEST(Flags, AListOfOneIsNoSweep) {
  const bench::Request request =
      request_of({"--batch", "3", "--units", "tensor", "--link", "1Gbit,20us", "--prefetch", "2",
                  "--bucket-cap-mib", "1"});
  EXPECT_EQ(bench::blocks_of(request).size(), 1u);
  EXPECT_TRUE(request.sweep.links.empty());
  ASSERT_TRUE(request.base.link.has_value());
  EXPECT_FALSE(request_of({"--link", "none"}).base.link.has_value());
}

TEST(Flags, BadListsAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--batch", ""}, "an item is empty"},
      {{"--batch", "2,,4"}, "an item is empty"},
      {{"--batch", "2,02"}, "2 stands there twice"},
      {{"--batch", "2,0"}, "--batch 0"},
      {{"--units", "block,"}, "an item is empty"},
      {{"--units", "size:1000,size:1k"}, "stands there twice"},
      {{"--units", "block,blocks"}, "blocks"},
      {{"--prefetch", "1,1"}, "twice"},
      {{"--prefetch", "1,2", "--forward-prefetch", "0"}, "leave one of the two out"},
      {{"--link", ""}, "an item is empty"},
      {{"--link", "none,none"}, "none stands there twice"},
      {{"--link", "1Gbit,20us,1000Mbit,20us"}, "1Gbit,20us stands there twice"},
      {{"--link", "1Gbit,20us,10Gbit"}, "RATE,LATENCY"},
      {{"--link", "1Gbit,none"}, "RATE,LATENCY"},
      {{"--bucket-cap-mib", "1,1.0"}, "1 stands there twice"},
      {{"--bucket-cap-mib", "0"}, "above 0"},
      {{"--batch", "2,4", "--global-batch", "8"}, "leave one out"},
      {{"--context", "16", "--context", "32"}, "given twice, 16 and 32"},
      {{"--context", "a=1", "--context", "a=2"}, "'a' is given twice"},
      {{"--context", "cpu_model=fast"}, "the result file has 'cpu_model' already"},
      {{"--context", "link=fast"}, "the result file has 'link' already"},
  };
  for (const auto& [args, part] : bad) {
    EXPECT_NE(refusal(args).find(part), std::string::npos) << args[0] << ": " << refusal(args);
  }
}

TEST(Flags, ContextIsASizeOrANote) {
  const Flags flags = parse({"--context", "64", "--context", "purpose=night run"});
  EXPECT_EQ(flags.positions, 64);
  EXPECT_EQ(flags.context.at("purpose"), "night run");
}

TEST(Flags, SeqFollowsAShorterModelUnlessGiven) {
  EXPECT_EQ(request_of({"--context", "64"}).base.seq, 64);
  EXPECT_NE(refusal({"--seq", "300"}).find("nearest: 256"), std::string::npos);
}

TEST(Flags, RefusalsNameWhatIsValid) {
  EXPECT_NE(refusal({"--model", "gpt9"}).find("gpt2-nano"), std::string::npos);
  EXPECT_NE(refusal({"--units", "class:Nope"}).find("TransformerBlock"), std::string::npos);
  EXPECT_NE(refusal({"--heads", "5"}).find("hidden 384"), std::string::npos);
  EXPECT_NE(refusal({"--link", "fast"}).find("--link"), std::string::npos);
  EXPECT_NE(refusal({"--batch", "2", "--global-batch", "4"}).find("leave one out"),
            std::string::npos);
  EXPECT_NE(refusal({"--global-batch", "5"}).find("nearest: 4 or 6"), std::string::npos);
}

TEST(Flags, SizesOfALlama) {
  const models::ModelConfig model = request_of({"--model", "llama-nano", "--heads", "8",
                                                "--kv-heads", "4", "--feed-forward", "100"})
                                        .base.model;
  EXPECT_EQ(model.family, models::Family::kLlama);
  EXPECT_EQ(model.heads, 8);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.feed_forward, 100);
  EXPECT_EQ(model.hidden, 384);
}

TEST(Flags, AFileGivesTheModelAndFlagsGoOverIt) {
  const std::string path = ::testing::TempDir() + "flags_test_model.json";
  std::ofstream(path) << R"({"base": "gpt2", "layers": 3, "hidden": 96, "dropout": 0.2})";
  const models::ModelConfig model = request_of({"--model", path, "--layers", "5"}).base.model;
  EXPECT_EQ(model.name, "flags_test_model");
  EXPECT_EQ(model.layers, 5);
  EXPECT_EQ(model.hidden, 96);
  EXPECT_EQ(model.vocab, 50257);
  EXPECT_EQ(model.dropout, 0.2);
  EXPECT_EQ(request_of({"--model", path, "--dropout", "0"}).base.model.dropout, 0);
  std::ofstream(path) << R"({"base": "gpt2", "layers": 0})";
  EXPECT_NE(refusal({"--model", path}).find("--model: " + path + ": key layers is 0"),
            std::string::npos);
  std::filesystem::remove(path);
}

TEST(Flags, WithoutEffectAreRefused) {
  const auto message = [](const char* model, const char* flag, const char* value) {
    std::vector<std::string> args = {"--model", model, flag};
    if (value != nullptr) args.emplace_back(value);
    const std::string text = refusal(args);
    EXPECT_EQ(text.rfind(flag, 0), 0u) << text;
    EXPECT_NE(text.find(model), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(message("mlp", "--heads", "4").find("no effect"), std::string::npos);
  EXPECT_NE(message("mlp", "--untied", nullptr).find("no effect"), std::string::npos);
  EXPECT_NE(message("llama-nano", "--dropout", "0.1").find("no effect"), std::string::npos);
  EXPECT_NE(message("gpt2-nano", "--kv-heads", "2").find("family gpt2"), std::string::npos);
  EXPECT_NE(message("gpt2-nano", "--feed-forward", "2").find("layers, heads"), std::string::npos);
  EXPECT_EQ(refusal({"--model", "mlp", "--dropout", "0.1"}), "accepted");
  EXPECT_EQ(refusal({"--model", "llama-nano", "--untied"}), "accepted");
}

TEST(Flags, TooLargeSizesNameTheFlag) {
  EXPECT_THROW(request_of({"--layers", "16385"}), UserError);
  EXPECT_NE(refusal({"--layers", "99999"}).find("--layers 99999"), std::string::npos);
  EXPECT_NE(refusal({"--hidden", "1048577"}).find("nearest: 1048576"), std::string::npos);
  EXPECT_NE(refusal({"--context", "99999999"}).find("--context 99999999"), std::string::npos);
  EXPECT_NE(refusal({"--model", "llama-nano", "--kv-heads", "99999"}).find("--kv-heads 99999"),
            std::string::npos);
}

TEST(Flags, AutotuneMeasuresUnlessBitsMustRepeat) {
  const auto mode = [](std::vector<std::string> args) {
    return request_of(std::move(args)).base.tuning.mode;
  };
  EXPECT_EQ(mode({}), ops::TuneMode::kOn);
  EXPECT_EQ(mode({"--autotune", "fixed"}), ops::TuneMode::kFixed);
  EXPECT_EQ(mode({"--autotune", "off"}), ops::TuneMode::kOff);
  EXPECT_EQ(mode({"--deterministic"}), ops::TuneMode::kFixed);
  EXPECT_EQ(mode({"--deterministic", "--autotune", "off"}), ops::TuneMode::kOff);
  EXPECT_EQ(refusal({"--deterministic", "--autotune", "on"}).find("--autotune on: "), 0u);
  EXPECT_EQ(refusal({"--autotune", "maybe"}).find("--autotune"), 0u);
}

TEST(Flags, UnknownStrategyNamesTheKnown) {
  Flags flags;
  flags.strategies = {"ddp", "zero9"};
  flags.data = "synthetic";
  try {
    make_request(flags, bench::fake_registry(), "x");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("ddp, zero1, zero2, zero3, fsdp"), std::string::npos)
        << error.what();
  }
}

TEST(DefaultCorpus, BesideTheProgramOrInTheDataFolder) {
  ::unsetenv("SHARDBENCH_DATA_DIR");
  EXPECT_EQ(default_corpus("/opt/x/build/bin/shardbench"), "/opt/x/build/data/shakespeare.txt");
  ::setenv("SHARDBENCH_DATA_DIR", "/data", 1);
  EXPECT_EQ(default_corpus("/opt/x/build/bin/shardbench"), "/data/shakespeare.txt");
  ::unsetenv("SHARDBENCH_DATA_DIR");
}

TEST(CommandWithout, DropsFlagsWithTheirValuesAndQuotes) {
  Program program;
  program.args = {"build/bin/shardbench", "compare", "--world",   "4",        "--model", "gpt2",
                  "--link=1,2",           "--quiet", "--context", "a=it's me"};
  EXPECT_EQ(command_without(program, {"--world", "--link"}),
            "./shardbench compare --model gpt2 --context 'a=it'\\''s me'");
}

}  // namespace
}  // namespace shardbench::cli
