#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "common/models/build.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"
#include "tests/support/reference_gpt2.h"

namespace shardbench::models {
namespace {

using namespace shardbench::testing;  // NOLINT
Weights copies_of(Model& model, PlainHooks& hooks, at::ScalarType type) {
  Weights weights;
  for (Parameter* p : model.parameters()) {
    weights[p->name()] = hooks.value(p->name()).to(type).clone().requires_grad_(true);
  }
  return weights;
}

struct Case {
  ModelConfig config;
  std::int64_t batch, length;
  double weight_stddev;  ///< 0: the model's own start
};

ModelConfig tiny(std::int64_t layers, std::int64_t heads, std::int64_t hidden, std::int64_t vocab,
                 bool tied) {
  return {.name = "tiny",
          .family = Family::kGpt2,
          .layers = layers,
          .heads = heads,
          .hidden = hidden,
          .vocab = vocab,
          .context = 12,
          .tied = tied,
          .dropout = 0};
}

class Gpt2Model : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(21); }
};

TEST_P(Gpt2Model, LossAndAllGradientsEqualPlainAten) {
  const Case& c = GetParam();
  const auto model = build(c.config);
  for (const char* units : {"whole", "block", "tensor"}) {
    SCOPED_TRACE(units);
    PlainHooks hooks(*model, 1, units);
    if (c.weight_stddev > 0) hooks.randomize(c.weight_stddev);
    const at::Tensor tokens = random_indices(c.config.vocab, {c.batch, c.length});
    const at::Tensor targets = random_indices(c.config.vocab, {c.batch, c.length});
    const at::Tensor loss = (*model)(tokens, targets);
    loss.backward();

    // Against fp64, so that the distance is this model's rounding alone.
    Weights weights = copies_of(*model, hooks, at::kDouble);
    const at::Tensor expected = reference_gpt2(c.config, weights, tokens, targets);
    expected.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 2e-6 * expected.item<double>());
    for (Parameter* p : model->parameters()) {
      EXPECT_TRUE(close_to(hooks.gradient(p->name()), weights[p->name()].grad(), 1e-5))
          << p->name();
      EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Model,
                         ::testing::Values(Case{tiny(2, 3, 15, 37, true), 2, 7, 0.3},
                                           Case{tiny(2, 3, 15, 37, false), 2, 7, 0.3},
                                           Case{tiny(3, 1, 7, 5, true), 1, 1, 0.5},
                                           Case{tiny(1, 2, 6, 11, false), 3, 12, 0},
                                           Case{tiny(2, 4, 32, 256, true), 5, 9, 0}));

TEST(Gpt2Logits, AreReturnedWithoutTargets) {
  const ModelConfig config = tiny(2, 3, 15, 37, true);
  const auto model = build(config);
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(37, {2, 7});
  at::NoGradGuard no_grad;
  const at::Tensor logits = (*model)(tokens);
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, 7, 37}));
  const double loss =
      at::cross_entropy_loss(logits.view({14, 37}), tokens.view({14})).item<double>();
  EXPECT_NEAR((*model)(tokens, tokens).item<double>(), loss, 1e-6);
}

TEST(Gpt2Logits, DependOnNoLaterToken) {
  const auto model = build(tiny(2, 3, 15, 37, false));
  PlainHooks hooks(*model);
  at::NoGradGuard no_grad;
  const at::Tensor tokens = at::zeros({1, 8}, at::kLong);
  const at::Tensor before = (*model)(tokens).clone();
  tokens[0][5] = 30;
  const at::Tensor after = (*model)(tokens);
  EXPECT_TRUE(close_to(after.narrow(1, 0, 5), before.narrow(1, 0, 5), 1e-6));
  EXPECT_FALSE(close_to(after.narrow(1, 5, 1), before.narrow(1, 5, 1), 1e-2));
}

TEST(Gpt2Repeat, TwoStepsGiveTheSameBits) {
  const ModelConfig config = tiny(2, 3, 15, 37, true);
  const auto model = build(config);
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(37, {3, 9}), targets = random_indices(37, {3, 9});
  (*model)(tokens, targets).backward();
  Weights first;
  for (Parameter* p : model->parameters()) first[p->name()] = hooks.gradient(p->name()).clone();
  hooks.forget_gradients();
  (*model)(tokens, targets).backward();
  for (Parameter* p : model->parameters()) {
    EXPECT_TRUE(hooks.gradient(p->name()).equal(first[p->name()])) << p->name();
  }
}

TEST(Gpt2Frozen, EmbeddingsAndOneBlockGetNoGradient) {
  const ModelConfig config = tiny(3, 3, 15, 37, false);
  const auto model = build(config);
  const auto frozen = [](const std::string& name) {
    return name.starts_with("w") || name.starts_with("h.0.") || name == "h.2.mlp.fc.weight";
  };
  for (Parameter* p : model->parameters()) model->set_requires_grad(*p, !frozen(p->name()));
  PlainHooks hooks(*model, 1, "block");
  hooks.randomize(0.3);
  const at::Tensor tokens = random_indices(37, {2, 7}), targets = random_indices(37, {2, 7});
  (*model)(tokens, targets).backward();
  Weights weights = copies_of(*model, hooks, at::kDouble);
  reference_gpt2(config, weights, tokens, targets).backward();
  for (Parameter* p : model->parameters()) {
    if (frozen(p->name())) {
      EXPECT_EQ(hooks.ready(p->name()), 0) << p->name();
      EXPECT_TRUE(hooks.gradient(p->name()).isnan().all().item<bool>()) << p->name();
    } else {
      EXPECT_TRUE(close_to(hooks.gradient(p->name()), weights[p->name()].grad(), 1e-5))
          << p->name();
    }
  }
}

TEST(MlpModel, LossAndAllGradientsEqualPlainAten) {
  ModelConfig config = preset("mlp");
  config.hidden = 13;
  config.vocab = 29;
  const auto model = build(config);
  PlainHooks hooks(*model, 3, "block");
  const at::Tensor tokens = random_indices(29, {3, 5}), targets = random_indices(29, {3, 5});
  const at::Tensor loss = (*model)(tokens, targets);
  loss.backward();
  Weights w = copies_of(*model, hooks, at::kDouble);
  at::Tensor x = at::embedding(w["embed.weight"], tokens);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string fc = "layers." + std::to_string(layer) + ".fc";
    x = at::gelu(at::matmul(x, w[fc + ".weight"].t()) + w[fc + ".bias"], "tanh");
  }
  const at::Tensor logits = at::matmul(x, w["head.weight"].t()) + w["head.bias"];
  const at::Tensor expected =
      at::cross_entropy_loss(logits.reshape({15, 29}), targets.reshape({15}));
  expected.backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
  for (Parameter* p : model->parameters()) {
    EXPECT_TRUE(close_to(hooks.gradient(p->name()), w[p->name()].grad(), 1e-5)) << p->name();
  }
}

}  // namespace
}  // namespace shardbench::models
