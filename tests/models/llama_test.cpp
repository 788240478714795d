#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "common/models/build.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"
#include "tests/support/reference_llama.h"

namespace shardbench::models {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Case {
  ModelConfig config;
  std::int64_t batch, length;
  double weight_stddev;  ///< 0: the model's own start
};

ModelConfig tiny(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t hidden, std::int64_t vocab, bool tied) {
  return {.name = "tiny",
          .family = Family::kLlama,
          .layers = layers,
          .heads = heads,
          .hidden = hidden,
          .vocab = vocab,
          .context = 12,
          .tied = tied,
          .kv_heads = kv_heads,
          .feed_forward = 13};
}

ModelConfig qwen_like() {
  ModelConfig config = tiny(2, 4, 2, 24, 19, false);
  config.qkv_bias = true;
  config.rope_theta = 100;
  config.norm_eps = 1e-2;
  return config;
}

Weights copies_of(Model& model, PlainHooks& hooks, at::ScalarType type) {
  Weights weights;
  for (Parameter* p : model.parameters()) {
    weights[p->name()] = hooks.value(p->name()).to(type).clone().requires_grad_(true);
  }
  return weights;
}

class LlamaModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(23); }
};

TEST_P(LlamaModel, LossAndAllGradientsEqualPlainAten) {
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

    Weights weights = copies_of(*model, hooks, at::kDouble);
    const at::Tensor expected = reference_llama(c.config, weights, tokens, targets);
    expected.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 2e-6 * expected.item<double>());
    for (Parameter* p : model->parameters()) {
      const at::Tensor& gradient = weights[p->name()].grad();
      if (gradient.abs().max().item<double>() < 1e-12) {  // zero by mathematics
        EXPECT_LT(hooks.gradient(p->name()).abs().max().item<double>(), 1e-6) << p->name();
      } else {
        EXPECT_TRUE(close_to(hooks.gradient(p->name()), gradient, 1e-5)) << p->name();
      }
      EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LlamaModel,
                         ::testing::Values(Case{tiny(2, 4, 2, 24, 37, false), 2, 7, 0.3},
                                           Case{tiny(2, 3, 1, 18, 37, true), 2, 7, 0.3},
                                           Case{tiny(2, 3, 3, 18, 37, false), 3, 5, 0.3},
                                           Case{tiny(3, 1, 1, 6, 5, true), 1, 1, 0.5},
                                           Case{qwen_like(), 2, 6, 0.3},
                                           Case{tiny(1, 2, 1, 8, 11, false), 3, 12, 0}));

TEST(LlamaLogits, AreReturnedWithoutTargetsAndDependOnNoLaterToken) {
  const auto model = build(tiny(2, 4, 2, 24, 37, false));
  PlainHooks hooks(*model);
  at::NoGradGuard no_grad;
  const at::Tensor tokens = at::zeros({1, 8}, at::kLong);
  const at::Tensor before = (*model)(tokens).clone();
  ASSERT_EQ(before.sizes(), at::IntArrayRef({1, 8, 37}));
  tokens[0][5] = 30;
  const at::Tensor after = (*model)(tokens);
  EXPECT_TRUE(close_to(after.narrow(1, 0, 5), before.narrow(1, 0, 5), 1e-6));
  EXPECT_FALSE(close_to(after.narrow(1, 5, 1), before.narrow(1, 5, 1), 1e-2));
}

TEST(LlamaLogits, DependOnTheOrderOfEarlierTokens) {
  // Rotary angles are all that tells positions apart.
  const auto model = build(tiny(2, 4, 2, 24, 37, false));
  PlainHooks hooks(*model);
  hooks.randomize(0.3);
  at::NoGradGuard no_grad;
  const at::Tensor tokens = at::tensor({3, 9, 4, 7}, at::kLong).view({1, 4});
  const at::Tensor swapped = at::tensor({9, 3, 4, 7}, at::kLong).view({1, 4});
  const at::Tensor last = (*model)(tokens).select(1, 3).clone();
  EXPECT_FALSE(close_to((*model)(swapped).select(1, 3), last, 1e-3));
}

TEST(LlamaRepeat, TwoStepsGiveTheSameBitsWithAnotherLengthBetween) {
  const auto model = build(tiny(2, 4, 2, 24, 37, true));
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(37, {3, 9}), targets = random_indices(37, {3, 9});
  (*model)(tokens, targets).backward();
  Weights first;
  for (Parameter* p : model->parameters()) first[p->name()] = hooks.gradient(p->name()).clone();
  for (std::int64_t length : {4, 12}) {
    at::NoGradGuard no_grad;
    const at::Tensor others = random_indices(37, {1, length});
    (*model)(others, others);
  }
  hooks.forget_gradients();
  (*model)(tokens, targets).backward();
  for (Parameter* p : model->parameters()) {
    EXPECT_TRUE(hooks.gradient(p->name()).equal(first[p->name()])) << p->name();
  }
}

TEST(LlamaStart, IsSmallAndNearlyUniform) {
  const auto model = build(preset("llama-nano"));
  PlainHooks hooks(*model, 1, "block");
  EXPECT_EQ(model->units().size(), 7u);  // root and six blocks
  const auto stddev = [&](const char* name) { return hooks.value(name).std().item<double>(); };
  EXPECT_NEAR(stddev("embed.weight"), 0.02, 0.0005);
  EXPECT_NEAR(stddev("layers.5.attn.k.weight"), 0.02, 0.0005);
  EXPECT_NEAR(stddev("layers.5.mlp.up.weight"), 0.02, 0.0005);
  const double residual = 0.02 / std::sqrt(12.0);
  EXPECT_NEAR(stddev("layers.0.attn.o.weight"), residual, 0.0002);
  EXPECT_NEAR(stddev("layers.0.mlp.down.weight"), residual, 0.0002);
  EXPECT_TRUE(hooks.value("norm.weight").eq(1).all().item<bool>());
  const at::Tensor tokens = at::randint(256, {2, 32}, at::kLong);
  at::NoGradGuard no_grad;
  EXPECT_NEAR((*model)(tokens, tokens.roll(-1, 1)).item<double>(), std::log(256.0), 0.2);
}

TEST(LlamaStart, RefusesASequenceBeyondTheContext) {
  const auto model = build(tiny(1, 2, 1, 8, 11, false));
  PlainHooks hooks(*model);
  EXPECT_THROW((*model)(at::zeros({1, 13}, at::kLong)), UserError);
}

}  // namespace
}  // namespace shardbench::models
