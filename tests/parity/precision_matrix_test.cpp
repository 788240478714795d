// Every strategy against its reference in bf16 and fp16, bit for bit; bytes counted, by formula,
// the same.

#include <gtest/gtest.h>

#include "tests/support/parity_run.h"

namespace shardbench::testing {
namespace {

struct Recipe {
  const char* model;
  DType compute;
  DType reduce;
};

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  for (const char* model : {"mlp", "convnet", "gpt2-nano", "llama-nano"}) {
    for (DType compute : {DType::kBFloat16, DType::kFloat16}) {
      all.push_back({model, compute, DType::kFloat32});
    }
  }
  return all;
}

train::RunConfig run_of(const Recipe& recipe) {
  train::RunConfig config = small_run(recipe.model);
  config.options.compute_dtype = recipe.compute;
  config.options.reduce_dtype = recipe.reduce;
  if (recipe.compute == DType::kFloat16 || recipe.reduce == DType::kFloat16) {
    config.loss_scale = train::LossScale::parse("1024");
  }
  return config;
}

std::string name_of_recipe(const Recipe& recipe) {
  std::string name =
      fmt::format("{}_{}_{}", recipe.model, name_of(recipe.compute), name_of(recipe.reduce));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class PrecisionMatrix : public ::testing::TestWithParam<Recipe> {};

TEST_P(PrecisionMatrix, OverWorldSizes) { expect_parity(run_of(GetParam()), {1, 2, 3, 4, 8}); }

INSTANTIATE_TEST_SUITE_P(Models, PrecisionMatrix, ::testing::ValuesIn(recipes()),
                         [](const auto& test) { return name_of_recipe(test.param); });

/// Every pair of dtypes, gradients rounded before they travel, micro-batches added up.
class PrecisionPairs : public ::testing::TestWithParam<Recipe> {};

std::vector<Recipe> pairs() {
  std::vector<Recipe> all;
  for (const char* model : {"gpt2-nano", "convnet"}) {
    for (DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (DType reduce : {DType::kBFloat16, DType::kFloat16}) {
        all.push_back({model, compute, reduce});
      }
    }
  }
  return all;
}

TEST_P(PrecisionPairs, GradientsTravelNarrow) {
  train::RunConfig config = run_of(GetParam());
  expect_parity(config, {1, 2, 3});
  config.accumulation = 2;
  config.max_norm = 0.5;
  expect_parity(config, {3});
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PrecisionPairs, ::testing::ValuesIn(pairs()),
                         [](const auto& test) { return name_of_recipe(test.param); });

TEST(PrecisionOptions, AccumulationClippingAndDropout) {
  train::RunConfig config = run_of({"gpt2-nano", DType::kBFloat16, DType::kFloat32});
  config.accumulation = 3;
  config.max_norm = 0.5;
  config.model.dropout = 0.1;
  expect_parity(config, {1, 2, 3});
}

TEST(PrecisionOptions, KeptAfterForwardAndPrefetch) {
  train::RunConfig config = run_of({"gpt2-nano", DType::kBFloat16, DType::kBFloat16});
  for (train::Reshard reshard : {train::Reshard::kAuto, train::Reshard::kFalse}) {
    config.options.reshard_after_forward = reshard;
    expect_parity(config, {2});
  }
  config.options.forward_prefetch = config.options.backward_prefetch = 0;
  expect_parity(config, {2});
}

TEST(PrecisionOptions, UnitPolicies) {
  train::RunConfig config = run_of({"gpt2-nano", DType::kBFloat16, DType::kFloat32});
  for (const char* units : {"tensor", "whole", "size:3k"}) {
    SCOPED_TRACE(units);
    config.options.units = sharding::UnitPolicy::parse(units);
    expect_parity(config, {3});
  }
}

TEST(PrecisionOptions, BroadcastInitialWeights) {
  train::RunConfig config = run_of({"convnet", DType::kBFloat16, DType::kFloat32});
  config.options.init = train::InitMode::kBroadcastTensor;
  expect_parity(config, {3});
}

TEST(PrecisionOptions, UntiedWithSgd) {
  train::RunConfig config = run_of({"gpt2-nano", DType::kBFloat16, DType::kFloat32});
  config.optimizer.kind = train::OptimizerKind::kSgd;
  config.optimizer.lr = 0.1;
  config.model.tied = false;
  expect_parity(config, {2});
}

TEST(PrecisionOptions, EmulatedLinkKeepsBits) {
  train::RunConfig config = run_of({"gpt2-nano", DType::kBFloat16, DType::kBFloat16});
  config.link = comm::LinkModel::parse("1Gbit,20us");
  expect_parity(config, {2, 3});
}

}  // namespace
}  // namespace shardbench::testing
