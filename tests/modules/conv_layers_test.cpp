#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/core/error.h"
#include "common/memory/tracker.h"
#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/conv.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/pool.h"
#include "common/ops/forward_context.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"
#include "tests/support/reference_conv.h"

namespace shardbench {
namespace {

using namespace shardbench::testing;  // NOLINT

/// An evaluation for as long as it lives.
class Evaluation {
 public:
  Evaluation() { ops::forward_context().training = false; }
  ~Evaluation() { ops::forward_context().training = true; }
};

/// A batch norm on PlainHooks, with parameters that are neither 1 nor 0.
class BatchNormLayer : public ::testing::Test {
 protected:
  static constexpr std::int64_t kChannels = 3;

  BatchNormLayer() {
    at::manual_seed(8);
    hooks_.randomize(0.5);
  }
  const at::Tensor& buffer(std::size_t i) const { return model_.buffers()[i]->tensor; }
  /// Of the batches given, in fp64, and the gradients of sum(y * grad) over all of them.
  void expect_gradients(const std::vector<at::Tensor>& xs, const std::vector<at::Tensor>& grads) {
    const at::Tensor w = hooks_.value("weight").to(at::kDouble).requires_grad_(true);
    const at::Tensor b = hooks_.value("bias").to(at::kDouble).requires_grad_(true);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const at::Tensor x = xs[i].detach().to(at::kDouble).requires_grad_(true);
      batch_norm_of(x, w, b).backward(grads[i].to(at::kDouble));
      EXPECT_TRUE(close_to(xs[i].grad(), x.grad(), 1e-5));
    }
    EXPECT_TRUE(close_to(hooks_.gradient("weight"), w.grad(), 1e-5));
    EXPECT_TRUE(close_to(hooks_.gradient("bias"), b.grad(), 1e-5));
  }

  Model model_{"norm", std::make_unique<BatchNorm>(kChannels)};
  PlainHooks hooks_{model_};
};

at::Tensor batch(double shift) {
  return (random({4, 3, 5}, at::kFloat) + shift).detach().requires_grad_(true);
}

TEST_F(BatchNormLayer, BuffersAreNamedAndStartAsInPyTorch) {
  ASSERT_EQ(model_.buffers().size(), 2u);
  EXPECT_EQ(model_.buffers()[0]->name, "running_mean");
  EXPECT_EQ(model_.buffers()[1]->name, "running_var");
  EXPECT_TRUE(buffer(0).equal(at::zeros({kChannels})));
  EXPECT_TRUE(buffer(1).equal(at::ones({kChannels})));
}

TEST_F(BatchNormLayer, EveryTrainingForwardMovesTheBuffersInPlace) {
  at::Tensor mean = at::zeros({kChannels}), variance = at::ones({kChannels});
  const float* address = buffer(0).const_data_ptr<float>();
  for (double shift : {0.0, 2.0, -5.0}) {
    const at::Tensor x = batch(shift);
    at::batch_norm(x, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, false);
    model_(x);
    EXPECT_TRUE(buffer(0).equal(mean));
    EXPECT_TRUE(buffer(1).equal(variance));
  }
  EXPECT_EQ(buffer(0).const_data_ptr<float>(), address);
  EXPECT_FALSE(buffer(0).requires_grad());
}

TEST_F(BatchNormLayer, TwoForwardsBeforeOneBackward) {
  const std::vector<at::Tensor> xs = {batch(0), batch(3)};
  const std::vector<at::Tensor> grads = {random({4, 3, 5}, at::kFloat),
                                         random({4, 3, 5}, at::kFloat)};
  const at::Tensor first = model_(xs[0]), second = model_(xs[1]);
  ((first * grads[0]).sum() + (second * grads[1]).sum()).backward();
  expect_gradients(xs, grads);
  EXPECT_EQ(hooks_.ready("weight"), 1);
  EXPECT_EQ(hooks_.ready("bias"), 1);
}

TEST_F(BatchNormLayer, AnEvaluationBetweenForwardAndBackwardDoesNotDisturb) {
  const std::vector<at::Tensor> xs = {batch(1)};
  const std::vector<at::Tensor> grads = {random({4, 3, 5}, at::kFloat)};
  const at::Tensor y = model_(xs[0]);
  {
    const Evaluation evaluation;
    at::NoGradGuard no_grad;
    model_(batch(7));
  }
  y.backward(grads[0]);
  expect_gradients(xs, grads);
}

TEST_F(BatchNormLayer, EvaluationReadsTheBuffersAndLeavesThem) {
  for (double shift : {1.0, 2.0}) model_(batch(shift));
  for (Parameter* p : model_.parameters()) p->forget_uses();
  const at::Tensor mean = buffer(0).clone(), variance = buffer(1).clone();
  const at::Tensor x = batch(4), grad = random({4, 3, 5}, at::kFloat);
  at::Tensor y;
  {
    const Evaluation evaluation;
    y = model_(x);
  }
  EXPECT_TRUE(buffer(0).equal(mean));
  EXPECT_TRUE(buffer(1).equal(variance));
  // What moves the buffers now does not change the gradient of what was computed before.
  at::Tensor(buffer(0)).add_(100);
  at::Tensor(buffer(1)).mul_(9);
  y.backward(grad);

  const at::Tensor scale = (variance.to(at::kDouble) + 1e-5).rsqrt();
  const at::Tensor w = hooks_.value("weight").to(at::kDouble).requires_grad_(true);
  const at::Tensor b = hooks_.value("bias").to(at::kDouble).requires_grad_(true);
  const at::Tensor in = x.detach().to(at::kDouble).requires_grad_(true);
  const at::Tensor expected =
      (in - per_channel(mean.to(at::kDouble), in)) * per_channel(scale * w, in) +
      per_channel(b, in);
  expected.backward(grad.to(at::kDouble));
  EXPECT_TRUE(close_to(y, expected, 3e-6));
  EXPECT_TRUE(close_to(x.grad(), in.grad(), 1e-5));
  EXPECT_TRUE(close_to(hooks_.gradient("weight"), w.grad(), 1e-5));
  EXPECT_TRUE(close_to(hooks_.gradient("bias"), b.grad(), 1e-5));
}

TEST_F(BatchNormLayer, OneValuePerChannelIsRefusedInTrainingOnly) {
  EXPECT_THROW(model_(random({1, 3, 1}, at::kFloat)), UserError);
  EXPECT_TRUE(buffer(0).equal(at::zeros({kChannels})));
  const Evaluation evaluation;
  EXPECT_NO_THROW(model_(random({1, 3, 1}, at::kFloat)));
}

TEST(ConvLayer, StartsWithinItsFanIn) {
  Model model("conv", std::make_unique<Conv3d>(5, 7, ConvOptions{}));
  PlainHooks hooks(model);
  const double bound = 1 / std::sqrt(5.0 * 27),
               largest = hooks.value("weight").abs().max().item<double>();
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.98 * bound);
  EXPECT_NEAR(hooks.value("weight").mean().item<double>(), 0, 0.1 * bound);
  EXPECT_TRUE(hooks.value("bias").eq(0).all().item<bool>());
}

TEST(ConvLayer, RefusesOtherInputs) {
  Model model("conv", std::make_unique<Conv2d>(3, 4, ConvOptions{}));
  PlainHooks hooks(model);
  EXPECT_THROW(model(random({2, 4, 5, 5}, at::kFloat)), InvariantError);
  EXPECT_THROW(model(random({2, 3, 5}, at::kFloat)), InvariantError);
}

/// What a stage of a convnet does.
class Stage : public Module {
 public:
  Stage() {
    conv_ = &add_child<Conv2d>("conv", 3, 5, ConvOptions{3, 1, 1, false});
    norm_ = &add_child<BatchNorm>("norm", 5);
  }
  std::string_view class_name() const override { return "Stage"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const at::Tensor x = functional::relu((*norm_)((*conv_)(inputs[0])));
    return functional::max_pool(x, ops::PoolWindow::tiles({2, 2}));
  }

 private:
  Conv2d* conv_;
  BatchNorm* norm_;
};

TEST(ConvStage, EqualsPlainAtenUnderEveryGranularity) {
  at::manual_seed(4);
  const at::Tensor input = random({2, 3, 6, 7}, at::kFloat),
                   grad = random({2, 5, 3, 3}, at::kFloat);
  for (const char* units : {"whole", "tensor"}) {
    SCOPED_TRACE(units);
    Model model("stage", std::make_unique<Stage>());
    PlainHooks hooks(model, 1, units);
    const at::Tensor x = input.clone().requires_grad_(true);
    const at::Tensor y = model(x);
    y.backward(grad);

    const at::Tensor in = input.to(at::kDouble).requires_grad_(true);
    const auto leaf = [&](const char* name) {
      return hooks.value(name).to(at::kDouble).requires_grad_(true);
    };
    const at::Tensor w = leaf("conv.weight"), scale = leaf("norm.weight"), b = leaf("norm.bias");
    const at::Tensor expected =
        at::max_pool2d(batch_norm_of(conv_of(in, w, {}, 1, 1), scale, b).relu(), {2, 2});
    expected.backward(grad.to(at::kDouble));
    EXPECT_TRUE(close_to(y, expected, 3e-6));
    EXPECT_TRUE(close_to(x.grad(), in.grad(), 1e-5));
    EXPECT_TRUE(close_to(hooks.gradient("conv.weight"), w.grad(), 1e-5));
    EXPECT_TRUE(close_to(hooks.gradient("norm.weight"), scale.grad(), 1e-5));
    EXPECT_TRUE(close_to(hooks.gradient("norm.bias"), b.grad(), 1e-5));
  }
}

TEST(ConvStage, KeepsNoMoreThanBackwardNeeds) {
  const auto live = [] {
    return memory::tracker().live()[static_cast<std::size_t>(memory::Category::kActivation)];
  };
  Model model("stage", std::make_unique<Stage>());
  PlainHooks hooks(model);
  const at::Tensor x = random({2, 3, 6, 8}, at::kFloat).requires_grad_(true);
  const std::int64_t before = live();
  {
    const at::Tensor y = model(x);
    // The convolution's output, the norm's (where relu lives too) with two numbers per channel, and
    // the pool's with one int64 each.
    const std::int64_t elements = 2 * 5 * 6 * 8, pooled = elements / 4;
    EXPECT_EQ(live() - before, 4 * (2 * elements + 2 * 5 + pooled) + 8 * pooled);
    y.sum().backward();
    EXPECT_EQ(live() - before, 4 * pooled);
  }
  at::NoGradGuard no_grad;
  const at::Tensor y = model(x);
  EXPECT_EQ(live() - before, 4 * y.numel());
}

TEST(PoolFunctions, PassGradientsOn) {
  at::manual_seed(6);
  const ops::PoolWindow window = {{3, 2}, {2, 2}, {1, 0}};
  const auto expect = [&](auto ours, auto aten) {
    const at::Tensor x = random({2, 3, 5, 6}, at::kFloat).requires_grad_(true);
    const at::Tensor in = x.detach().clone().requires_grad_(true);
    const at::Tensor y = ours(x), expected = aten(in);
    EXPECT_TRUE(close_to(y, expected, 1e-6));
    const at::Tensor grad = at::randn_like(y);
    y.backward(grad);
    expected.backward(grad);
    EXPECT_TRUE(close_to(x.grad(), in.grad(), 1e-6));
    EXPECT_FALSE(ours(x.detach()).requires_grad());
  };
  expect([&](const at::Tensor& x) { return functional::max_pool(x, window); },
         [&](const at::Tensor& x) {
           return at::max_pool2d(x, {3, 2}, {2, 2}, {1, 0});
         });
  expect([&](const at::Tensor& x) { return functional::avg_pool(x, window); },
         [&](const at::Tensor& x) {
           return at::avg_pool2d(x, {3, 2}, {2, 2}, {1, 0});
         });
  expect([&](const at::Tensor& x) { return functional::global_avg_pool(x); },
         [&](const at::Tensor& x) {
           return x.mean(at::IntArrayRef{2, 3});
         });
}

TEST(ReluFunction, RefusesAnOverwrittenOutput) {
  const auto made = [] { return random({2, 3}, at::kFloat).requires_grad_(true) * 1; };
  functional::relu(made()).sum().backward();
  const at::Tensor y = functional::relu(made());
  const at::Tensor sum = functional::residual_add(random({2, 3}, at::kFloat), y);
  EXPECT_THROW(sum.sum().backward(), InvariantError);
}

}  // namespace
}  // namespace shardbench
