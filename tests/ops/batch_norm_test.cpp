#include "common/ops/batch_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"
#include "tests/support/reference_conv.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

constexpr double kEps = 1e-5;

class BatchNormOp : public ::testing::TestWithParam<std::vector<std::int64_t>> {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    const std::vector<std::int64_t>& sizes = GetParam();
    const std::int64_t channels = sizes[1];
    x_ = random(sizes) * 3 + 2;
    w_ = random({channels});
    b_ = random({channels});
    grad_ = random(sizes);
    running_ = {random({channels}), random({channels}).square() + 0.5};
  }

  at::Tensor x_, w_, b_, grad_;
  RunningStatistics running_;
};

TEST_P(BatchNormOp, TrainingEqualsPlainAten) {
  const BatchNormResult result = batch_norm_training(x_, w_, b_, running_, 0.1, kEps);
  const at::Tensor x = x_.detach().requires_grad_(true), w = w_.detach().requires_grad_(true),
                   b = b_.detach().requires_grad_(true);
  const at::Tensor y = batch_norm_of(x, w, b, kEps);
  y.backward(grad_);
  EXPECT_TRUE(close_to(result.y, y, 1e-12));
  const BatchNormGrads grads =
      batch_norm_training_backward(grad_, x_, w_, result.mean, result.rstd, kEps, {});
  EXPECT_TRUE(close_to(grads.weight, w.grad(), 1e-11));
  EXPECT_TRUE(close_to(grads.bias, b.grad(), 1e-12));
  // Of few values the gradient is mathematically near zero, so it counts against the output's.
  EXPECT_LT((grads.x - x.grad()).norm().item<double>(), 1e-11 * grad_.norm().item<double>());
}

TEST_P(BatchNormOp, RunningStatisticsMoveAsInAten) {
  RunningStatistics expected = {running_.mean.clone(), running_.variance.clone()};
  const at::Tensor y = at::batch_norm(x_, w_, b_, expected.mean, expected.variance,
                                      /*training=*/true, 0.3, kEps, /*cudnn_enabled=*/false);
  const double* address = running_.mean.const_data_ptr<double>();
  const BatchNormResult result = batch_norm_training(x_, w_, b_, running_, 0.3, kEps);
  EXPECT_TRUE(result.y.equal(y));
  EXPECT_TRUE(running_.mean.equal(expected.mean));
  EXPECT_TRUE(running_.variance.equal(expected.variance));
  EXPECT_EQ(running_.mean.const_data_ptr<double>(), address);
}

TEST_P(BatchNormOp, RunningVarianceIsUnbiased) {
  const at::Tensor before = running_.variance.clone(), mean = running_.mean.clone();
  batch_norm_training(x_, w_, b_, running_, 0.1, kEps);
  const std::vector<std::int64_t> dims = all_but_channels(x_);
  EXPECT_TRUE(close_to(running_.variance, before * 0.9 + x_.var(dims, true, false) * 0.1, 1e-12));
  EXPECT_TRUE(close_to(running_.mean, mean * 0.9 + x_.mean(dims) * 0.1, 1e-12));
}

TEST_P(BatchNormOp, EvaluationEqualsPlainAtenAndChangesNothing) {
  const RunningStatistics before = {running_.mean.clone(), running_.variance.clone()};
  const at::Tensor y = batch_norm_evaluation(x_, w_, b_, running_, kEps);
  const at::Tensor x = x_.detach().requires_grad_(true), w = w_.detach().requires_grad_(true),
                   b = b_.detach().requires_grad_(true);
  const at::Tensor scale = (before.variance + kEps).rsqrt();
  const at::Tensor expected =
      (x - per_channel(before.mean, x)) * per_channel(scale * w, x) + per_channel(b, x);
  expected.backward(grad_);
  EXPECT_TRUE(close_to(y, expected, 1e-12));
  EXPECT_TRUE(running_.mean.equal(before.mean));
  EXPECT_TRUE(running_.variance.equal(before.variance));
  const BatchNormGrads grads = batch_norm_evaluation_backward(grad_, x_, w_, before, kEps, {});
  EXPECT_TRUE(close_to(grads.x, x.grad(), 1e-12));
  EXPECT_TRUE(close_to(grads.weight, w.grad(), 1e-12));
  EXPECT_TRUE(close_to(grads.bias, b.grad(), 1e-12));
}

TEST_P(BatchNormOp, GivesOnlyWhatIsAskedFor) {
  const BatchNormResult result = batch_norm_training(x_, w_, b_, running_, 0.1, kEps);
  const auto backward = [&](const BatchNormNeeds& needs) {
    return batch_norm_training_backward(grad_, x_, w_, result.mean, result.rstd, kEps, needs);
  };
  const BatchNormGrads all = backward({});
  const BatchNormGrads only_x = backward({.x = true, .weight = false, .bias = false});
  const BatchNormGrads only_weight = backward({.x = false, .weight = true, .bias = false});
  EXPECT_TRUE(only_x.x.equal(all.x));
  EXPECT_FALSE(only_x.weight.defined());
  EXPECT_FALSE(only_x.bias.defined());
  EXPECT_TRUE(only_weight.weight.equal(all.weight));
  EXPECT_FALSE(only_weight.x.defined());
  EXPECT_FALSE(only_weight.bias.defined());
}

INSTANTIATE_TEST_SUITE_P(Sizes, BatchNormOp,
                         ::testing::Values(std::vector<std::int64_t>{2, 3, 5, 7},
                                           std::vector<std::int64_t>{1, 4, 9},
                                           std::vector<std::int64_t>{5, 33},
                                           std::vector<std::int64_t>{2, 1, 3, 2, 5},
                                           std::vector<std::int64_t>{2, 2, 1, 1}));

TEST(BatchNormOpBits, AreTheSameInEveryRun) {
  const at::Tensor x = random({3, 5, 7, 3}, at::kFloat), w = random({5}, at::kFloat),
                   b = random({5}, at::kFloat);
  const auto run = [&] {
    const RunningStatistics running = {at::zeros({5}), at::ones({5})};
    return batch_norm_training(x.clone(), w, b, running, 0.1, kEps);
  };
  const BatchNormResult first = run();
  for (int i = 0; i < 5; ++i) {
    const BatchNormResult again = run();
    EXPECT_TRUE(again.y.equal(first.y));
    EXPECT_TRUE(again.mean.equal(first.mean));
    EXPECT_TRUE(again.rstd.equal(first.rstd));
  }
}

TEST(BatchNormOpBatch, OneValuePerChannelHasNoVariance) {
  const at::Tensor x = random({1, 3, 1, 1}), one = random({3});
  const RunningStatistics running = {random({3}), random({3}).square()};
  EXPECT_THROW(batch_norm_training(x, one, one, running, 0.1, kEps), InvariantError);
  EXPECT_NO_THROW(batch_norm_evaluation(x, one, one, running, kEps));
}

}  // namespace
}  // namespace shardbench::ops
