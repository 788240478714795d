#include "tests/support/parity_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/memory/tracker.h"
#include "common/models/config.h"
#include "common/train/runner.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {

namespace {

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
  input.compute_dtype = run.config.options.compute_dtype;
  input.reduce_dtype = run.config.options.reduce_dtype;
  input.sparse_embedding = run.config.options.sparse_embedding;
  input.tokens = run.config.batch * run.config.seq;
  input.in_place = run.config.options.collectives == train::CollectiveMode::kInPlace;
  input.optimizer_in_backward = run.config.options.optimizer_in_backward;
  const bool reaches_peers =  // in place, gradients do not lie where peers reach them
      run.config.options.collectives == train::CollectiveMode::kDirect;
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
      if (reaches_peers) {
        EXPECT_EQ(counted[i].wire.staging, 0);
      }
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

}  // namespace

train::RunConfig small_run(const std::string& model) {
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

void expect_parity(const train::RunConfig& base, const std::vector<int>& worlds,
                   const std::vector<std::string>& strategies) {
  const train::Registry registry = all_strategies();
  for (int world : worlds) {
    train::RunConfig config = base;
    config.world_size = world;
    SCOPED_TRACE(config.model.name + " W=" + std::to_string(world));
    std::uint64_t hashes[2] = {0, 0};
    for (const train::StrategyEntry& entry : registry.entries()) {
      const bool wanted = strategies.empty() || std::find(strategies.begin(), strategies.end(),
                                                          entry.name) != strategies.end();
      if (!wanted) continue;
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
    // Without accumulation both orders of adding up are the same sums, unless gradients are rounded
    // on the way.
    if (strategies.empty() && config.accumulation == 1 &&
        config.options.reduce_dtype == DType::kFloat32) {
      EXPECT_EQ(hashes[0], hashes[1]);
    }
  }
}

}  // namespace shardbench::testing
