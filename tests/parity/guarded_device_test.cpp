// Strategies on a device whose memory the host cannot touch: each must equal the reference there
// bit for bit, and code that uses a device pointer as the host's dies.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/models/build.h"
#include "common/ops/forward_context.h"
#include "tests/support/guarded_device.h"
#include "tests/support/parity_run.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

StrategyCase case_of(const std::string& preset, double dropout = 0) {
  train::RunConfig config = small_run(preset);
  config.model.dropout = dropout;
  if (preset != "convnet") config.model.layers = 1;  // every operation is a copy to and fro
  StrategyCase test;
  test.build = [config] {
    auto model = models::build(config.model);
    model->set_device(guarded_device());
    return model;
  };
  test.forward = [config](Model& model, int step, int micro, int rank) {
    ops::forward_context() = {11, step, 100 * rank + 10 * micro, true};
    const auto numbers = [&](int which) {
      const at::Tensor values = fixed({config.batch, config.seq}, step, 10 * rank + micro, which);
      return values.abs().mul(config.model.vocab).to(at::kLong).to(guarded_device());
    };
    return std::vector<at::Tensor>{model(numbers(1), numbers(2))};
  };
  test.steps = 2;
  return test;
}

void expect_equal(const StrategyCase& test, const std::vector<int>& worlds,
                  const std::vector<std::string>& strategies = strategy_names()) {
  for (const int world : worlds) {
    for (const std::string& strategy : strategies) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

TEST(GuardedDevice, Gpt2OverWorldSizes) { expect_equal(case_of("gpt2-nano", 0.1), {1, 2}); }
TEST(GuardedDevice, LlamaOverWorldSizes) { expect_equal(case_of("llama-nano"), {2}); }
TEST(GuardedDevice, MlpOverWorldSizes) { expect_equal(case_of("mlp"), {1, 2, 3}); }

TEST(GuardedDevice, AccumulationClippingAndSgd) {
  StrategyCase test = case_of("gpt2-nano");
  test.accumulation = 2;
  test.max_norm = 0.5;
  test.optimizer.kind = train::OptimizerKind::kSgd;
  expect_equal(test, {2});
}

TEST(GuardedDevice, InitialWeightsOfRank0) {
  StrategyCase test = case_of("mlp");
  test.options.init = train::InitMode::kBroadcastTensor;
  expect_equal(test, {1, 2});
}

TEST(GuardedDevice, HalfWidth) {
  StrategyCase test = case_of("llama-nano");
  test.options.compute_dtype = test.options.reduce_dtype = DType::kBFloat16;
  expect_equal(test, {2}, {"ddp", "zero2", "zero3", "fsdp"});
}

}  // namespace
}  // namespace shardbench::testing
