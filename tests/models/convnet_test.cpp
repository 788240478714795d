#include "common/models/convnet.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/core/error.h"
#include "common/models/build.h"
#include "common/ops/forward_context.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"
#include "tests/support/reference_conv.h"

namespace shardbench::models {
namespace {

using namespace shardbench::testing;  // NOLINT

ModelConfig small(std::vector<std::int64_t> image) {
  ModelConfig config = preset("convnet");
  config.image = std::move(image);
  config.context = image_elements(config);
  config.layers = 3;
  config.hidden = 5;
  config.vocab = 11;
  return config;
}

/// The same model in plain ATen calls, in fp64.
at::Tensor reference_logits(const ModelConfig& config, const at::Tensor& tokens,
                            std::map<std::string, at::Tensor>& w) {
  std::vector<std::int64_t> sizes = {tokens.size(0)};
  sizes.insert(sizes.end(), config.image.begin(), config.image.end());
  at::Tensor x = (tokens.to(at::kDouble) / 5.0 - 1).view(sizes);  // 11 values: 0..10 to -1..1
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string stage = fmt::format("stages.{}.", i);
    x = conv_of(x, w[stage + "conv.weight"], {}, 1, 1);
    x = batch_norm_of(x, w[stage + "norm.weight"], w[stage + "norm.bias"]).relu();
    if (i + 1 == config.layers) break;
    for (std::int64_t d = 2; d < x.dim(); ++d) {  // maxima along one dimension after the other
      if (x.size(d) < 2) continue;
      x = std::get<0>(x.narrow(d, 0, x.size(d) / 2 * 2).unfold(d, 2, 2).max(-1));
    }
  }
  return at::matmul(x.flatten(2).mean(2), w["head.weight"].t()) + w["head.bias"];
}

class ConvNetModel : public ::testing::TestWithParam<std::vector<std::int64_t>> {
 protected:
  void SetUp() override { at::manual_seed(21); }
  void TearDown() override { ops::forward_context() = {}; }
};

TEST_P(ConvNetModel, LossAndGradientsEqualPlainAten) {
  const ModelConfig config = small(GetParam());
  const auto model = build(config);
  PlainHooks hooks(*model, 3);
  const at::Tensor tokens = random_indices(11, {4, config.context});
  const at::Tensor targets = random_indices(11, {4, config.context});
  const at::Tensor loss = (*model)(tokens, targets);
  loss.backward();

  std::map<std::string, at::Tensor> w;
  for (Parameter* p : model->parameters()) {
    w[p->name()] = hooks.value(p->name()).to(at::kDouble).requires_grad_(true);
  }
  const at::Tensor logits = reference_logits(config, tokens, w);
  const at::Tensor expected = at::cross_entropy_loss(logits, targets.select(1, -1));
  expected.backward();
  EXPECT_TRUE(close_to(loss, expected, 1e-5));
  double all = 0;
  for (const auto& [name, leaf] : w) all = std::hypot(all, leaf.grad().norm().item<double>());
  for (Parameter* p : model->parameters()) {
    // A bias that the next norm takes out again has no gradient, so the error counts against all.
    const at::Tensor gradient = w[p->name()].grad();
    const double error = (hooks.gradient(p->name()) - gradient).norm().item<double>();
    EXPECT_LE(error, 1e-5 * gradient.norm().item<double>() + 1e-6 * all) << p->name();
    EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
  }
}

TEST_P(ConvNetModel, OnlyTheLastTargetCounts) {
  const ModelConfig config = small(GetParam());
  const auto model = build(config);
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(11, {2, config.context});
  const at::Tensor targets = random_indices(11, {2, config.context});
  at::Tensor others = (targets + 1).remainder(11);
  others.select(1, -1).copy_(targets.select(1, -1));
  at::NoGradGuard no_grad;
  const at::Tensor loss = (*model)(tokens, targets);
  EXPECT_TRUE((*model)(tokens, others).equal(loss));
  EXPECT_FALSE((*model)(tokens, (targets + 1).remainder(11)).equal(loss));
}

TEST_P(ConvNetModel, TheShapeListIsWhatIsBuilt) {
  const ModelConfig config = small(GetParam());
  const sharding::ModelShape planned = shape_of(config);
  const auto model = build(config);
  const sharding::ModelShape& built = model->shape();
  ASSERT_EQ(built.modules.size(), planned.modules.size());
  for (std::size_t m = 0; m < built.modules.size(); ++m) {
    EXPECT_EQ(built.modules[m].path, planned.modules[m].path);
    EXPECT_EQ(built.modules[m].class_name, planned.modules[m].class_name);
    EXPECT_EQ(built.modules[m].parent, planned.modules[m].parent);
  }
  ASSERT_EQ(built.parameters.size(), planned.parameters.size());
  for (std::size_t p = 0; p < built.parameters.size(); ++p) {
    EXPECT_EQ(built.parameters[p].name, planned.parameters[p].name);
    EXPECT_EQ(built.parameters[p].dims, planned.parameters[p].dims);
    EXPECT_EQ(built.parameters[p].module, planned.parameters[p].module);
    EXPECT_EQ(built.parameters[p].decay, planned.parameters[p].decay);
  }
}

INSTANTIATE_TEST_SUITE_P(Images, ConvNetModel,
                         ::testing::Values(std::vector<std::int64_t>{2, 9},
                                           std::vector<std::int64_t>{3, 8, 6},
                                           std::vector<std::int64_t>{1, 5, 1},
                                           std::vector<std::int64_t>{2, 4, 5, 6}));

TEST(ConvNet, AMicroBatchGivesTheSameBitsWhateverWasBefore) {
  const auto model = build(preset("convnet"));
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(256, {4, 768}), targets = random_indices(256, {4, 768});
  (*model)(tokens, targets).backward();
  std::vector<at::Tensor> first;
  for (Parameter* p : model->parameters()) first.push_back(hooks.gradient(p->name()).clone());
  std::vector<at::Tensor> elsewhere;  // so that the next activations lie at other addresses
  for (int i = 1; i < 6; ++i) {
    elsewhere.push_back(at::empty({i * 1000}));
    hooks.forget_gradients();
    (*model)(random_indices(256, {2, 768}), random_indices(256, {2, 768})).backward();
    hooks.forget_gradients();
    (*model)(tokens.clone(), targets).backward();
    for (Parameter* p : model->parameters()) {
      EXPECT_TRUE(hooks.gradient(p->name()).equal(first[static_cast<std::size_t>(p->index())]))
          << p->name();
    }
  }
}

TEST(ConvNet, EvaluationUsesRunningStatisticsAndTreatsRowsApart) {
  const auto model = build(preset("convnet"));
  PlainHooks hooks(*model);
  const at::Tensor tokens = random_indices(256, {4, 768});
  at::NoGradGuard no_grad;
  (*model)(tokens);
  ASSERT_EQ(model->buffers().size(), 8u);
  EXPECT_EQ(model->buffers()[3]->name, "stages.1.norm.running_var");
  std::vector<at::Tensor> before;
  for (const ModuleBuffer* b : model->buffers()) before.push_back(b->tensor.clone());
  ops::forward_context().training = false;
  const at::Tensor all = (*model)(tokens), one = (*model)(tokens.narrow(0, 2, 1));
  ops::forward_context() = {};
  EXPECT_EQ(all.sizes(), at::IntArrayRef({4, 256}));
  EXPECT_TRUE(close_to(one[0], all[2], 1e-5));
  for (std::size_t b = 0; b < before.size(); ++b) {
    EXPECT_TRUE(model->buffers()[b]->tensor.equal(before[b]));
  }
}

TEST(ConvNet, FreshModelsGuessUniformly) {
  const auto model = build(preset("convnet"));
  PlainHooks hooks(*model);
  at::NoGradGuard no_grad;
  const at::Tensor tokens = random_indices(256, {8, 768});
  EXPECT_NEAR((*model)(tokens, tokens).item<double>(), std::log(256.0), 0.5);
}

TEST(ConvNet, BlocksAreUnits) {
  const auto model = build(preset("convnet"));
  PlainHooks hooks(*model, 1, "block");
  ASSERT_EQ(model->units().size(), 5u);  // four stages, and the head, all the root has
  const at::Tensor tokens = random_indices(256, {2, 768});
  (*model)(tokens, tokens).backward();
  for (Parameter* p : model->parameters()) EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
}

TEST(ConvNet, RefusesAWindowThatIsNoImage) {
  const auto model = build(preset("convnet"));
  PlainHooks hooks(*model);
  for (std::int64_t length : {767, 769, 128}) {
    const at::Tensor tokens = at::zeros({2, length}, at::kLong);
    EXPECT_THROW((*model)(tokens, tokens), UserError);
  }
}

}  // namespace
}  // namespace shardbench::models
