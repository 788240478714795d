// Every strategy against the references over models, world sizes and options; counted traffic and
// memory against the closed forms.

#include <gtest/gtest.h>

#include "common/models/config.h"
#include "common/train/runner.h"
#include "tests/support/parity_run.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

TEST(ParityMatrix, MlpOverWorldSizes) { expect_parity(small_run("mlp"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, Gpt2OverWorldSizes) { expect_parity(small_run("gpt2-nano"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, ConvnetOverWorldSizes) { expect_parity(small_run("convnet"), {1, 2, 3, 4, 8}); }

TEST(ParityMatrix, LlamaOverWorldSizes) { expect_parity(small_run("llama-nano"), {1, 2, 3, 4, 8}); }

/// Every rank draws from its own seed and must end up with rank 0's weights.
TEST(ParityMatrix, BroadcastInitialWeights) {
  for (const char* model : {"gpt2-nano", "convnet"}) {
    train::RunConfig config = small_run(model);
    for (train::InitMode mode : {train::InitMode::kBroadcast, train::InitMode::kBroadcastTensor}) {
      SCOPED_TRACE(to_string(mode));
      config.options.init = mode;
      expect_parity(config, {1, 2, 3});
    }
  }
}

TEST(ParityMatrix, BatchStatisticsWithAccumulation) {
  train::RunConfig config = small_run("convnet");
  config.accumulation = 3;
  config.max_norm = 0.5;
  expect_parity(config, {1, 2, 3});
}

TEST(ParityMatrix, MoreWorldSizes) { expect_parity(small_run("mlp"), {5, 7}); }

TEST(ParityMatrix, UnitPolicies) {
  train::RunConfig config = small_run("gpt2-nano");
  for (const char* units : {"tensor", "whole", "size:3k", "class:Linear"}) {
    SCOPED_TRACE(units);
    config.options.units = sharding::UnitPolicy::parse(units);
    expect_parity(config, {3});
  }
}

TEST(ParityMatrix, KeptAfterForward) {
  train::RunConfig config = small_run("gpt2-nano");
  config.options.reshard_after_forward = train::Reshard::kAuto;
  expect_parity(config, {2});
  config.options.reshard_after_forward = train::Reshard::kFalse;
  expect_parity(config, {2});
}

TEST(ParityMatrix, AccumulationClippingAndDropout) {
  train::RunConfig config = small_run("gpt2-nano");
  config.accumulation = 3;
  config.max_norm = 0.5;
  config.model.dropout = 0.1;
  expect_parity(config, {1, 2, 3});
}

TEST(ParityMatrix, SgdAndUntied) {
  train::RunConfig config = small_run("gpt2-nano");
  config.optimizer.kind = train::OptimizerKind::kSgd;
  config.optimizer.lr = 0.1;
  config.model.tied = false;
  expect_parity(config, {2});
}

/// No gradient is kept, and nothing else changes.
TEST(ParityMatrix, OptimizerInBackward) {
  const std::vector<std::string> strategies = {"zero2", "zero3", "fsdp"};
  for (const char* model : {"mlp", "gpt2-nano", "convnet", "llama-nano"}) {
    train::RunConfig config = small_run(model);
    config.options.optimizer_in_backward = true;
    expect_parity(config, {1, 2, 3}, strategies);
  }
  train::RunConfig config = small_run("gpt2-nano");
  config.options.optimizer_in_backward = true;
  expect_parity(config, {4, 8}, strategies);
  for (const char* units : {"tensor", "whole", "size:3k"}) {
    SCOPED_TRACE(units);
    config.options.units = sharding::UnitPolicy::parse(units);
    expect_parity(config, {3}, strategies);
  }
  config.options.reduce_dtype = config.options.compute_dtype = DType::kBFloat16;
  config.optimizer.kind = train::OptimizerKind::kSgd;
  config.optimizer.lr = 0.1;
  expect_parity(config, {2}, strategies);
}

TEST(ParityMatrix, StagedOrInPlaceIsTheSame) {
  for (const char* model : {"mlp", "gpt2-nano", "convnet", "llama-nano"}) {
    train::RunConfig config = small_run(model);
    config.options.collectives = train::CollectiveMode::kInPlace;
    expect_parity(config, {1, 2, 3}, {"zero3", "fsdp"});
    config.options.collectives = train::CollectiveMode::kStaged;
    expect_parity(config, {2});
  }
  train::RunConfig config = small_run("gpt2-nano");
  config.options.collectives = train::CollectiveMode::kInPlace;
  config.accumulation = 2;
  config.max_norm = 0.5;
  expect_parity(config, {4, 8}, {"zero3", "fsdp"});
  config = small_run("gpt2-nano");
  config.options.collectives = train::CollectiveMode::kInPlace;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    config.options.compute_dtype = config.options.reduce_dtype = dtype;
    for (const bool in_backward : {false, true}) {
      config.options.optimizer_in_backward = in_backward;
      for (const train::InitMode init :
           {train::InitMode::kDeferred, train::InitMode::kBroadcastTensor}) {
        config.options.init = init;
        expect_parity(config, {3}, {"zero3", "fsdp"});
      }
    }
  }
}

TEST(ParityMatrix, SplitHead) {
  for (const char* model : {"gpt2-nano", "llama-nano"}) {
    train::RunConfig config = small_run(model);
    config.model.tied = false;
    config.model.split_head = 4;
    expect_parity(config, {1, 2, 3});
    config.options.optimizer_in_backward = true;
    expect_parity(config, {2}, {"fsdp"});
  }
}

TEST(ParityMatrix, SparseEmbedding) {
  for (const char* model : {"mlp", "gpt2-nano", "llama-nano"}) {
    train::RunConfig config = small_run(model);
    config.model.tied = false;
    config.options.sparse_embedding = true;
    expect_parity(config, {1, 2, 3, 4});
  }
}

TEST(ParityMatrix, SparseEmbeddingWithOtherOptions) {
  train::RunConfig config = small_run("gpt2-nano");
  config.model.tied = false;
  config.options.sparse_embedding = true;
  for (const char* units : {"tensor", "whole", "class:Embedding"}) {
    SCOPED_TRACE(units);
    config.options.units = sharding::UnitPolicy::parse(units);
    expect_parity(config, {3});
  }
  config.options.units = {};
  config.accumulation = 3;
  config.max_norm = 0.5;
  expect_parity(config, {2, 3});
  config.options.bucket_cap_mib = config.options.first_bucket_mib = 1e-6;
  config.options.compute_dtype = DType::kBFloat16;
  expect_parity(config, {2});
  config = small_run("gpt2-nano");
  config.model.tied = false;
  config.model.split_head = 4;
  config.options.sparse_embedding = true;
  config.comm_thread = true;
  expect_parity(config, {2});
  config.options.collectives = train::CollectiveMode::kStaged;
  expect_parity(config, {2});
  config.options.collectives = train::CollectiveMode::kInPlace;
  expect_parity(config, {3}, {"zero3", "fsdp"});
}

/// Nobody ever holds the whole gradient of the table: the peak of full gradients is smaller.
TEST(ParityMatrix, SparseEmbeddingWritesNoWholeGradient) {
  const train::Registry registry = all_strategies();
  train::RunConfig config = small_run("mlp");
  config.model.vocab = 4096;
  config.world_size = 2;
  const auto peak = [&](const char* strategy, bool sparse) {
    config.strategy = strategy;
    config.options.sparse_embedding = sparse;
    config.options.units = sharding::UnitPolicy::parse("whole");
    const train::StrategyRun run = train::run_strategy(*comm::forked_ranks(), config, registry);
    EXPECT_FALSE(run.failure) << run.failure->message;
    const auto full = static_cast<std::size_t>(memory::Category::kUnshardedGrad);
    return run.ranks.at(0).memory.peak_by_category[full];
  };
  const std::int64_t table = 4096 * 50 * 4;
  for (const char* strategy : {"zero2", "zero3", "fsdp"}) {
    // In place of it the 24 rows, at most, that a rank's tokens look up.
    const std::int64_t rows = 24 * 50 * 4;
    EXPECT_LE(peak(strategy, true), peak(strategy, false) - table + 2 * rows) << strategy;
  }
}

TEST(ParityMatrix, EmulatedLinkKeepsBits) {
  train::RunConfig config = small_run("gpt2-nano");
  config.link = comm::LinkModel::parse("1Gbit,20us");
  expect_parity(config, {2, 3});
}

TEST(ParityMatrix, HostsKeepBits) {
  train::RunConfig config = small_run("gpt2-nano");
  config.link = comm::LinkModel::parse("10Gbit,1us");
  config.link->hosts = comm::HostLink{comm::LinkSpeed::parse("1Gbit,20us"), 2};
  expect_parity(config, {2, 4});
}

TEST(ParityMatrix, CommThreadKeepsBitsAndBytes) {
  train::RunConfig config = small_run("gpt2-nano");
  config.comm_thread = true;
  config.accumulation = 2;
  expect_parity(config, {1, 2, 3, 4});
  config.link = comm::LinkModel::parse("1Gbit,20us");
  expect_parity(config, {2});
  expect_parity(small_run("convnet"), {2});
}

/// Overlap on and off, and any depth or bucket, are the same work.
TEST(ParityMatrix, OverlapChangesNoBit) {
  const train::Registry registry = all_strategies();
  train::RunConfig config = small_run("llama-nano");
  config.world_size = 3;
  config.steps = 20;
  const train::ReferenceRun reference =
      train::run_reference(*comm::forked_ranks(), config, train::AccumulationOrder::kRanksFirst);
  ASSERT_TRUE(reference.result) << (reference.failure ? reference.failure->message : "");
  const auto expect_same = [&] {
    for (const std::string& strategy : strategy_names()) {
      config.strategy = strategy;
      const train::StrategyRun run = train::run_strategy(*comm::forked_ranks(), config, registry);
      ASSERT_FALSE(run.failure) << run.failure->message;
      EXPECT_TRUE(train::judge(run, *reference.result).bit_equal) << strategy;
    }
  };
  for (const bool comm_thread : {false, true}) {
    config.comm_thread = comm_thread;
    for (const int prefetch : {0, 1, 3}) {
      config.options.forward_prefetch = config.options.backward_prefetch = prefetch;
      expect_same();
    }
    // A bucket a tensor, of 1 KiB, and one for all.
    for (const double cap_mib : {1e-6, 1.0 / 1024, 100.0}) {
      config.options.bucket_cap_mib = config.options.first_bucket_mib = cap_mib;
      expect_same();
    }
  }
}

TEST(ParityMatrix, GradientNormIsTheSameForAllStrategiesAndAccumulations) {
  const train::Registry registry = all_strategies();
  train::RunConfig config = small_run("gpt2-nano");
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
