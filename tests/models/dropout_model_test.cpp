#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "common/models/build.h"
#include "common/ops/forward_context.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"

namespace shardbench::models {
namespace {

using namespace shardbench::testing;  // NOLINT

class DropoutInModels : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(6); }
  void TearDown() override { ops::forward_context() = {}; }

  static ModelConfig config(double dropout) {
    return {.name = "tiny",
            .family = Family::kGpt2,
            .layers = 2,
            .heads = 2,
            .hidden = 10,
            .vocab = 23,
            .context = 8,
            .tied = true,
            .dropout = dropout};
  }

  struct Step {
    double loss = 0;
    std::map<std::string, at::Tensor> gradients;
  };
  /// Forward and backward of samples [first, first + count) of the test's batch of four.
  Step run(Model& model, PlainHooks& hooks, std::int64_t first, std::int64_t count,
           std::int64_t step = 1) {
    hooks.forget_gradients();
    ops::forward_context() = {.seed = 3, .step = step, .first_sample = first};
    const at::Tensor loss =
        model(tokens_.narrow(0, first, count), targets_.narrow(0, first, count));
    // Backward must use the context of its forward, whatever is set by then.
    ops::forward_context() = {.seed = 99, .step = 77, .first_sample = 1000};
    loss.backward();
    Step result{loss.item<double>(), {}};
    for (Parameter* p : model.parameters()) {
      result.gradients[p->name()] = hooks.gradient(p->name()).clone();
    }
    return result;
  }

  at::Tensor tokens_ = random_indices(23, {4, 8});
  at::Tensor targets_ = random_indices(23, {4, 8});
};

TEST_F(DropoutInModels, CuttingTheBatchChangesNoMask) {
  const auto model = build(config(0.3));
  PlainHooks hooks(*model);
  hooks.randomize(0.3);
  const Step whole = run(*model, hooks, 0, 4);
  const Step left = run(*model, hooks, 0, 2), right = run(*model, hooks, 2, 2);
  EXPECT_NEAR((left.loss + right.loss) / 2, whole.loss, 1e-5);
  for (const auto& [name, gradient] : whole.gradients) {
    const at::Tensor mean = (left.gradients.at(name) + right.gradients.at(name)) / 2;
    EXPECT_TRUE(close_to(mean, gradient, 1e-5)) << name;
  }
}

TEST_F(DropoutInModels, StepsDifferAndRepeatBitForBit) {
  const auto model = build(config(0.3));
  PlainHooks hooks(*model);
  const Step once = run(*model, hooks, 0, 4, 5), again = run(*model, hooks, 0, 4, 5);
  const Step other = run(*model, hooks, 0, 4, 6);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_NE(once.loss, other.loss);
  for (const auto& [name, gradient] : once.gradients) {
    EXPECT_TRUE(gradient.equal(again.gradients.at(name))) << name;
    EXPECT_FALSE(gradient.equal(other.gradients.at(name))) << name;
  }
}

TEST_F(DropoutInModels, GradientFollowsTheMaskedLoss) {
  // A directional difference in fp32 through the whole model: wide step, loose bound.
  const auto model = build(config(0.5));
  PlainHooks hooks(*model);
  hooks.randomize(0.3);
  const Step at_point = run(*model, hooks, 0, 4);
  const at::Tensor direction = at::randn({40, 10}, at::kFloat);
  const at::Tensor start = hooks.value("h.1.mlp.fc.weight").clone();
  const auto loss_at = [&](double t) {
    hooks.value("h.1.mlp.fc.weight").copy_(start + direction * t);
    return run(*model, hooks, 0, 4).loss;
  };
  const double h = 5e-3;
  const double slope = (loss_at(h) - loss_at(-h)) / (2 * h);
  const double expected =
      at_point.gradients.at("h.1.mlp.fc.weight").mul(direction).sum().item<double>();
  EXPECT_NEAR(slope, expected, 0.02 * std::abs(expected) + 1e-3);
}

TEST_F(DropoutInModels, EvaluationAndZeroAreTheIdentity) {
  const auto dropping = build(config(0.5)), plain = build(config(0));
  PlainHooks dropping_hooks(*dropping), plain_hooks(*plain);
  at::NoGradGuard no_grad;
  const double expected = (*plain)(tokens_, targets_).item<double>();
  EXPECT_NE((*dropping)(tokens_, targets_).item<double>(), expected);
  ops::forward_context().training = false;
  EXPECT_EQ((*dropping)(tokens_, targets_).item<double>(), expected);
}

}  // namespace
}  // namespace shardbench::models
