#include "bench/cli/flags.h"

#include <gtest/gtest.h>

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

TEST(Flags, UnknownStrategyNamesTheKnown) {
  Flags flags;
  flags.strategies = {"ddp", "zero9"};
  flags.data = "synthetic";
  try {
    make_request(flags, bench::fake_registry(), "x");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("ddp, zero3, fsdp"), std::string::npos)
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
