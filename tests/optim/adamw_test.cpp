#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstring>

#include "common/core/error.h"
#include "common/modules/parameter.h"
#include "common/optim/kernels.h"
#include "common/optim/optimizer.h"
#include "tests/support/numeric.h"
#include "tests/support/simd.h"

namespace shardbench::optim {
namespace {

/// One parameter in memory of its own, and the same one in torch.
struct Pair {
  explicit Pair(std::int64_t n, bool decay = true)
      : parameter("w", {n}, Init::constant(0)),
        value(at::randn({n})),
        gradient(at::randn({n})),
        reference(value.clone().requires_grad_(true)) {
    parameter.set_index(0);
    parameter.set_decay(decay);
    owned.pieces.push_back(
        {&parameter, 0, n, value.data_ptr<float>(), gradient.data_ptr<float>(), 0});
    owned.state_extent = n;
  }
  Parameter parameter;
  at::Tensor value;
  at::Tensor gradient;
  at::Tensor reference;
  Owned owned;
};

TEST(AdamW, EqualsTorchOverTenSteps) {
  at::manual_seed(3);
  for (bool decay : {true, false}) {
    Pair pair(1001, decay);
    train::OptimizerConfig config;
    config.lr = 0.01;
    const auto ours = make_optimizer(config, pair.owned);
    torch::optim::AdamW theirs({pair.reference},
                               torch::optim::AdamWOptions(config.lr)
                                   .betas({config.beta1, config.beta2})
                                   .eps(config.eps)
                                   .weight_decay(decay ? config.weight_decay : 0));
    for (int step = 0; step < 10; ++step) {
      pair.gradient.normal_();
      pair.reference.mutable_grad() = pair.gradient.clone();
      ours->step(pair.owned, {1}, 1.0f);
      theirs.step();
      EXPECT_LT(testing::relative_distance(pair.value, pair.reference), 1e-6) << step;
    }
  }
}

TEST(Kernels, EveryWidthGivesTheSameBits) {
  constexpr std::int64_t kCount = 1037;
  at::manual_seed(4);
  const at::Tensor gradient = at::randn({kCount});
  const at::Tensor start = at::randn({kCount});
  std::vector<at::Tensor> results;
  std::vector<double> squares;
  for (const SimdWidth width : simd_widths()) {
    const testing::WithSimdWidth in_use(width);
    const at::Tensor state = at::stack({start, start * 0.1, start * start, start, start * 0.3});
    const auto row = [&](std::int64_t i) { return state.mutable_data_ptr<float>() + i * kCount; };
    const AdamWStep step = {0.01F, 0.1F, 0.9F, 0.95F, 1e-8F, 0.02F, 1.7F, 0.7F};
    const auto* g = gradient.const_data_ptr<float>();
    adamw(step, kCount, g, row(0), row(1), row(2));
    sgd({0.01F, 0.1F, 0.9F, 0.7F}, kCount, g, row(3), row(4));
    results.push_back(state);
    squares.push_back(sum_of_squares(g, kCount));
    EXPECT_FALSE(at::equal(state[0], start));
    EXPECT_TRUE(at::equal(state, results.front())) << name_of(width);
    EXPECT_EQ(squares.back(), squares.front()) << name_of(width);
    EXPECT_TRUE(all_finite(g, kCount));
  }
}

TEST(AdamW, FirstStepHasTOne) {
  Pair pair(4, false);
  const at::Tensor before = pair.value.clone();
  train::OptimizerConfig config;
  config.lr = 0.5;
  make_optimizer(config, pair.owned)->step(pair.owned, {1}, 1.0f);
  // With t = 1 both corrections cancel: the update is lr x sign(gradient).
  EXPECT_TRUE(at::allclose(pair.value, before - 0.5 * pair.gradient.sign(), 1e-5, 1e-6));
}

TEST(AdamW, UnusedParameterKeepsItsBitsAndItsCount) {
  Pair pair(33);
  const at::Tensor before = pair.value.clone();
  train::OptimizerConfig config;
  const auto optimizer = make_optimizer(config, pair.owned);
  for (int step = 0; step < 3; ++step) optimizer->step(pair.owned, {0}, 1.0f);
  EXPECT_TRUE(pair.value.equal(before));
  pair.parameter.set_decay(false);
  optimizer->step(pair.owned, {1}, 1.0f);  // its own first step
  EXPECT_TRUE(at::allclose(pair.value, before - config.lr * pair.gradient.sign(), 1e-5, 1e-6));
}

TEST(AdamW, BitsDoNotDependOnCutsOrAlignment) {
  const std::int64_t n = 203;
  const at::Tensor g = at::randn({n}), p = at::randn({n}), m = at::randn({n}), v = at::rand({n});
  const AdamWStep step{1e-3f, 0.1f, 0.9f, 0.95f, 1e-8f, 1e-2f, 1.3f, 0.7f};
  const auto run = [&](const std::vector<std::int64_t>& cuts, std::int64_t shift) {
    at::Tensor out = at::empty({3, n + shift});
    at::Tensor gs = at::empty({n + shift});
    gs.narrow(0, shift, n).copy_(g);
    for (int i = 0; i < 3; ++i) out[i].narrow(0, shift, n).copy_(i == 0 ? p : i == 1 ? m : v);
    std::int64_t begin = 0;
    for (std::int64_t end : cuts) {
      const auto at = [&](int i) { return out[i].data_ptr<float>() + shift + begin; };
      adamw(step, end - begin, gs.data_ptr<float>() + shift + begin, at(0), at(1), at(2));
      begin = end;
    }
    return out.narrow(1, shift, n).contiguous();
  };
  const at::Tensor whole = run({n}, 0);
  EXPECT_TRUE(run({1, 2, 17, 64, 65, 130, n}, 0).equal(whole));
  EXPECT_TRUE(run({100, n}, 3).equal(whole));
}

/// Lines of values and moments that are used together are in different sets of the first cache.
TEST(AdamW, LargeStatesStartAQuarterOfAPageApart) {
  constexpr std::int64_t kCount = (1 << 18) + 48;
  Parameter parameter("p", {kCount}, Init::constant(0));
  parameter.set_index(0);
  const at::Tensor memory = at::zeros({2 * kCount + 16});
  for (const std::int64_t shift : {0, 16}) {
    float* const value = memory.mutable_data_ptr<float>() + shift;
    const Owned owned{{{&parameter, 0, kCount, value, value + kCount, 0}}, kCount};
    const auto optimizer = make_optimizer({}, owned);
    const auto at = [](const float* data) { return reinterpret_cast<std::uintptr_t>(data) % 4096; };
    const OwnedPiece& piece = owned.pieces[0];
    const float* const m = optimizer->first_moment(piece);
    const float* const v = optimizer->second_moment(piece);
    EXPECT_EQ(at(m), (at(value) + 1024) % 4096);
    EXPECT_EQ(at(v), (at(value) + 2048) % 4096);
    EXPECT_GE(v - m, kCount);
    EXPECT_EQ(v[kCount - 1], 0.0f);
  }
}

TEST(Sgd, EqualsTorchWithMomentumAndDecay) {
  at::manual_seed(4);
  Pair pair(77);
  train::OptimizerConfig config;
  config.kind = train::OptimizerKind::kSgd;
  config.lr = 0.1;
  const auto ours = make_optimizer(config, pair.owned);
  torch::optim::SGD theirs({pair.reference}, torch::optim::SGDOptions(config.lr)
                                                 .momentum(config.momentum)
                                                 .weight_decay(config.weight_decay));
  for (int step = 0; step < 10; ++step) {
    pair.gradient.normal_();
    pair.reference.mutable_grad() = pair.gradient.clone();
    ours->step(pair.owned, {1}, 1.0f);
    theirs.step();
    EXPECT_LT(testing::relative_distance(pair.value, pair.reference), 1e-6) << step;
  }
}

TEST(Optimizer, GradientScaleIsAppliedOnTheFly) {
  Pair a(9), b(9);
  b.value.copy_(a.value);
  b.gradient.copy_(a.gradient * 0.25);
  train::OptimizerConfig config;
  config.kind = train::OptimizerKind::kSgd;
  make_optimizer(config, a.owned)->step(a.owned, {1}, 0.25f);
  make_optimizer(config, b.owned)->step(b.owned, {1}, 1.0f);
  EXPECT_TRUE(a.value.equal(b.value));
}

TEST(Optimizer, LearningRateRisesOverTheWarmup) {
  train::OptimizerConfig config;
  config.lr = 0.8;
  EXPECT_EQ(train::learning_rate(config, 0), 0.8);
  config.lr_warmup = 4;
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 0), 0.2);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 2), 0.6);
  EXPECT_EQ(train::learning_rate(config, 3), 0.8);
  EXPECT_EQ(train::learning_rate(config, 99), 0.8);
}

TEST(Optimizer, RefusesSettingsOutOfRange) {
  const auto refused = [](auto change) {
    train::OptimizerConfig config;
    change(config);
    EXPECT_THROW(train::validate(config), UserError);
  };
  refused([](auto& c) { c.lr = -1; });
  refused([](auto& c) { c.lr = NAN; });
  refused([](auto& c) { c.beta2 = 1; });
  refused([](auto& c) { c.eps = 0; });
  refused([](auto& c) { c.weight_decay = -0.1; });
  refused([](auto& c) { c.momentum = 1; });
  EXPECT_NO_THROW(train::validate(train::OptimizerConfig{}));
}

}  // namespace
}  // namespace shardbench::optim
