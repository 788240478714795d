// Every strategy against the references over models, world sizes and options; counted traffic and
// memory against the closed forms.

#include <gtest/gtest.h>

#include "common/memory/tracker.h"
#include "common/models/config.h"
#include "common/train/runner.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

/// A small model of the family with uneven rows everywhere.
train::RunConfig small(const std::string& model) {
  train::RunConfig config;
  config.model = models::preset(model);
  config.model.layers = 2;
  config.seq = 12;
  if (model == "mlp") {
    config.model.hidden = 50;  // rows that divide by none of 3, 4, 8
  } else if (model == "convnet") {
    config.model.hidden = 5;
    config.model.image = {1, 5, 6};
    config.model.context = config.seq = 30;
  } else {
    config.model.heads = 3;
    config.model.hidden = model == "llama-nano" ? 42 : 33;  // heads of odd width need padding
    config.model.vocab = 259;
    config.model.kv_heads = model == "llama-nano" ? 1 : 0;
    config.model.feed_forward = model == "llama-nano" ? 55 : 0;
  }
  config.model.name = model + "-small";
  config.batch = 2;
  config.warmup = 1;
  config.steps = 2;
  config.data = "synthetic";
  config.timeout_s = 120;
  return config;
}

/// Counted bytes of every rank, phase and kind equal the closed forms; persistent bytes too.
void expect_formulas(const train::StrategyRun& run, sharding::FormulaKind kind) {
  const sharding::ModelShape shape = models::shape_of(run.config.model);
  sharding::FormulaInput input;
  input.model = &shape;
  input.units = run.config.options.units;
  input.world_size = run.config.world_size;
  input.accumulation = run.config.accumulation;
  input.reshard_after_forward =
      static_cast<sharding::FormulaInput::Reshard>(run.config.options.reshard_after_forward);
  input.bucket_cap_mib = run.config.options.bucket_cap_mib;
  input.first_bucket_mib = run.config.options.first_bucket_mib;
  input.optimizer_moments = train::moments_of(run.config.optimizer);
  for (const train::RankResult& rank : run.ranks) {
    SCOPED_TRACE(run.config.strategy + " rank " + std::to_string(rank.rank));
    EXPECT_TRUE(rank.traffic_steady);
    std::vector<comm::TrafficEntry> counted;
    for (const comm::TrafficEntry& e : rank.traffic) {
      if (e.phase != Phase::kMetrics) counted.push_back(e);
    }
    const auto formula = sharding::formula_traffic(kind, input, rank.rank);
    ASSERT_EQ(counted.size(), formula.size());
    for (std::size_t i = 0; i < formula.size(); ++i) {
      EXPECT_EQ(counted[i].phase, formula[i].phase);
      EXPECT_EQ(counted[i].kind, formula[i].kind);
      EXPECT_EQ(counted[i].calls, formula[i].calls);
      EXPECT_EQ(counted[i].payload_bytes, formula[i].payload_bytes);
      EXPECT_EQ(counted[i].algo_bytes, formula[i].algo_bytes);
      EXPECT_EQ(counted[i].wire.sent, formula[i].algo_bytes);
      EXPECT_EQ(counted[i].wire.staging, 0);
    }
    const sharding::FormulaMemory memory = sharding::formula_memory(kind, input, rank.rank);
    EXPECT_EQ(memory::persistent(rank.memory.between_steps), memory.persistent() + memory.padding);
    EXPECT_EQ(rank.memory.padding, memory.padding);
    EXPECT_EQ(memory::total(rank.memory.at_peak), rank.memory.peak);
    if (kind != sharding::FormulaKind::kDdp) {
      const auto gathered = static_cast<int>(memory::Category::kGatheredParam);
      EXPECT_LE(rank.memory.peak_by_category[gathered], sharding::unsharded_bound_bytes(input, 1));
      EXPECT_EQ(rank.memory.between_steps[gathered], 0);
      const auto full = static_cast<int>(memory::Category::kUnshardedGrad);
      EXPECT_EQ(rank.memory.between_steps[full], 0);
    }
  }
}

void expect_parity(const train::RunConfig& base, const std::vector<int>& worlds) {
  const train::Registry registry = all_strategies();
  for (int world : worlds) {
    train::RunConfig config = base;
    config.world_size = world;
    SCOPED_TRACE(config.model.name + " W=" + std::to_string(world));
    std::uint64_t hashes[2] = {0, 0};
    for (const train::StrategyEntry& entry : registry.entries()) {
      config.strategy = entry.name;
      const train::ReferenceRun reference =
          train::run_reference(*comm::forked_ranks(), config, entry.order);
      ASSERT_TRUE(reference.result) << (reference.failure ? reference.failure->message : "");
      const train::StrategyRun run = train::run_strategy(*comm::forked_ranks(), config, registry);
      ASSERT_FALSE(run.failure) << entry.name << ": " << run.failure->message;
      const train::Parity parity = train::judge(run, *reference.result);
      EXPECT_TRUE(parity.ok) << entry.name << ": " << parity.first_tensor << " " << parity.detail;
      EXPECT_TRUE(parity.bit_equal);
      std::uint64_t& hash = hashes[static_cast<int>(entry.order)];
      if (hash == 0) hash = parity.hash;
      EXPECT_EQ(parity.hash, hash) << entry.name;
      expect_formulas(run, entry.formula);
    }
    // Without accumulation both orders of adding up are the same sums.
    if (config.accumulation == 1) {
      EXPECT_EQ(hashes[0], hashes[1]);
    }
  }
}

TEST(ParityMatrix, MlpOverWorldSizes) { expect_parity(small("mlp"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, Gpt2OverWorldSizes) { expect_parity(small("gpt2-nano"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, ConvnetOverWorldSizes) { expect_parity(small("convnet"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, LlamaOverWorldSizes) { expect_parity(small("llama-nano"), {1, 2, 3, 4, 8}); }

/// Every rank draws from its own seed and must end up with rank 0's weights.
TEST(ParityMatrix, BroadcastInitialWeights) {
  for (const char* model : {"gpt2-nano", "convnet"}) {
    train::RunConfig config = small(model);
    for (train::InitMode mode : {train::InitMode::kBroadcast, train::InitMode::kBroadcastTensor}) {
      SCOPED_TRACE(to_string(mode));
      config.options.init = mode;
      expect_parity(config, {1, 2, 3});
    }
  }
}

TEST(ParityMatrix, BatchStatisticsWithAccumulation) {
  train::RunConfig config = small("convnet");
  config.accumulation = 3;
  config.max_norm = 0.5;
  expect_parity(config, {1, 2, 3});
}

TEST(ParityMatrix, MoreWorldSizes) { expect_parity(small("mlp"), {5, 7}); }

TEST(ParityMatrix, UnitPolicies) {
  train::RunConfig config = small("gpt2-nano");
  for (const char* units : {"tensor", "whole", "size:3k", "class:Linear"}) {
    SCOPED_TRACE(units);
    config.options.units = sharding::UnitPolicy::parse(units);
    expect_parity(config, {3});
  }
}

TEST(ParityMatrix, KeptAfterForward) {
  train::RunConfig config = small("gpt2-nano");
  config.options.reshard_after_forward = train::Reshard::kAuto;
  expect_parity(config, {2});
  config.options.reshard_after_forward = train::Reshard::kFalse;
  expect_parity(config, {2});
}

TEST(ParityMatrix, AccumulationClippingAndDropout) {
  train::RunConfig config = small("gpt2-nano");
  config.accumulation = 3;
  config.max_norm = 0.5;
  config.model.dropout = 0.1;
  expect_parity(config, {1, 2, 3});
}

TEST(ParityMatrix, SgdAndUntied) {
  train::RunConfig config = small("gpt2-nano");
  config.optimizer.kind = train::OptimizerKind::kSgd;
  config.optimizer.lr = 0.1;
  config.model.tied = false;
  expect_parity(config, {2});
}

TEST(ParityMatrix, EmulatedLinkKeepsBits) {
  train::RunConfig config = small("gpt2-nano");
  config.link = comm::LinkModel::parse("1Gbit,20us");
  expect_parity(config, {2, 3});
}

TEST(ParityMatrix, GradientNormIsTheSameForAllStrategiesAndAccumulations) {
  const train::Registry registry = all_strategies();
  train::RunConfig config = small("gpt2-nano");
  config.optimizer.lr = 0;
  // One global batch of 12 sequences, cut in different ways.
  double reference = 0;
  for (const auto& [world, accumulation, batch] :
       std::vector<std::tuple<int, int, int>>{{1, 1, 12}, {2, 1, 6}, {2, 3, 2}, {4, 1, 3}}) {
    config.world_size = world;
    config.accumulation = accumulation;
    config.batch = batch;
    for (const std::string& strategy : strategy_names()) {
      config.strategy = strategy;
      const train::StrategyRun run = train::run_strategy(*comm::forked_ranks(), config, registry);
      ASSERT_FALSE(run.failure) << run.failure->message;
      const double norm = run.ranks[0].steps[0].gradient_norm;
      if (reference == 0) reference = norm;
      EXPECT_NEAR(norm / reference, 1, 1e-6) << strategy << " W=" << world;
    }
  }
}

}  // namespace
}  // namespace shardbench::testing
