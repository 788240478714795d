// Measuring operations in a process of its own, and what runs make of the table. This process
// itself never touches LibTorch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/train/runner.h"
#include "tests/support/strategy_case.h"

namespace shardbench::train {
namespace {

using ops::Candidate;
using ops::Pass;
using ops::TuneKey;
using ops::TuneMode;
using ::testing::HasSubstr;

RunConfig small_config() {
  RunConfig config;
  config.model = models::preset("gpt2-nano");
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.hidden = 48;
  config.model.vocab = 65;
  config.model.context = 24;
  config.model.tied = false;
  config.batch = 3;
  config.seq = 17;
  config.warmup = 1;
  config.steps = 2;
  config.data = "synthetic";
  return config;
}

std::vector<TuneKey> keys_of(const ops::TuningTable& table) {
  std::vector<TuneKey> keys;
  for (const ops::TunedEntry& entry : table.entries) keys.push_back(entry.key);
  return keys;
}

/// The products of one block and the head, over the batch's rows.
std::vector<TuneKey> expected_keys(const RunConfig& config, bool accumulate) {
  const std::int64_t rows = config.batch * config.seq, width = config.model.hidden;
  std::vector<TuneKey> keys;
  for (const auto& [in, out, bias] :
       std::vector<std::tuple<std::int64_t, std::int64_t, bool>>{{width, 3 * width, true},
                                                                 {width, width, true},
                                                                 {width, 4 * width, true},
                                                                 {4 * width, width, true},
                                                                 {width, 65, false}}) {
    const DType fp32 = DType::kFloat32;
    keys.push_back({Pass::kForward, fp32, bias, false, rows, in, out});
    keys.push_back({Pass::kInputGrad, fp32, false, false, rows, in, out});
    keys.push_back({Pass::kWeightGrad, fp32, false, false, rows, in, out});
    if (accumulate) keys.push_back({Pass::kWeightGrad, fp32, false, true, rows, in, out});
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(TuneRun, MeasuresTheShapesOfAStep) {
  const RunConfig config = small_config();
  const TuningRun run = run_tuning(*comm::forked_ranks(), config);
  EXPECT_EQ(run.signal, 0);
  EXPECT_EQ(run.table.note, "");
  EXPECT_EQ(run.table.mode, TuneMode::kOn);
  EXPECT_EQ(keys_of(run.table), expected_keys(config, false));
  for (const ops::TunedEntry& entry : run.table.entries) {
    EXPECT_EQ(entry.chosen, ops::fastest(entry.key, entry.times));
    EXPECT_GT(entry.times.front().ns, 0);
  }
}

TEST(TuneRun, AccumulationAddsItsKeys) {
  RunConfig config = small_config();
  config.accumulation = 4;
  EXPECT_EQ(keys_of(run_tuning(*comm::forked_ranks(), config).table), expected_keys(config, true));
}

TEST(TuneRun, KeysDependOnNeitherWorldSizeNorStrategy) {
  RunConfig config = small_config();
  const std::vector<TuneKey> keys = keys_of(run_tuning(*comm::forked_ranks(), config).table);
  config.world_size = 5;
  config.strategy = "fsdp";
  config.options.units = sharding::UnitPolicy::parse("tensor");
  EXPECT_EQ(keys_of(run_tuning(*comm::forked_ranks(), config).table), keys);
}

TEST(TuneRun, AFailureFallsBackToTheFixedRuleWithANote) {
  RunConfig config = small_config();
  config.data = "/nowhere/to/be/found.txt";
  const TuningRun run = run_tuning(*comm::forked_ranks(), config);
  EXPECT_EQ(run.table.mode, TuneMode::kFixed);
  EXPECT_TRUE(run.table.entries.empty());
  EXPECT_THAT(run.table.note, HasSubstr("autotuning failed"));
  EXPECT_THAT(run.table.note, HasSubstr("found.txt"));
  // Far more than any machine has.
  config = small_config();
  config.batch = std::int64_t{1} << 34;
  EXPECT_THAT(run_tuning(*comm::forked_ranks(), config).table.note, HasSubstr("autotuning failed"));
}

/// A table that takes what the fixed rule would not, differently for each pass.
ops::TuningTable odd_table(const RunConfig& config) {
  ops::TuningTable table;
  table.mode = TuneMode::kOn;
  for (const TuneKey& key : expected_keys(config, true)) {
    // oneDNN's inner product runs on every CPU, its matrix product does not.
    table.entries.push_back({key, ops::candidates_for(key)[1], {}});
  }
  return table;
}

TEST(TuneRun, StrategiesFollowTheTableAndStayBitEqual) {
  const Registry registry = testing::all_strategies();
  RunConfig config = small_config();
  config.model.hidden = 128;
  const auto hash_of = [&](const std::string& strategy, const ReferenceRun& reference) {
    config.strategy = strategy;
    const Parity parity =
        judge(run_strategy(*comm::forked_ranks(), config, registry), *reference.result);
    EXPECT_TRUE(parity.bit_equal) << strategy << " W=" << config.world_size << ": "
                                  << parity.detail;
    return parity.hash;
  };
  for (const int world_size : {1, 2, 3}) {
    config.world_size = world_size;
    config.tuning = {TuneMode::kOff, {}, ""};
    ReferenceRun reference =
        run_reference(*comm::forked_ranks(), config, AccumulationOrder::kRanksFirst);
    ASSERT_TRUE(reference.result);
    const std::uint64_t plain = hash_of("ddp", reference);
    config.tuning = odd_table(config);
    reference = run_reference(*comm::forked_ranks(), config, AccumulationOrder::kRanksFirst);
    ASSERT_TRUE(reference.result);
    for (const std::string& name : testing::strategy_names()) {
      // The other kernels were really used: they round differently.
      EXPECT_NE(hash_of(name, reference), plain) << name;
    }
  }
}

}  // namespace
}  // namespace shardbench::train
