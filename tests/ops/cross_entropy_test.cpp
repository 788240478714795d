#include "common/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::vector<std::int64_t> targets;
  std::int64_t classes;
};

std::vector<std::int64_t> logits_sizes(const Sizes& s) {
  std::vector<std::int64_t> sizes = s.targets;
  sizes.push_back(s.classes);
  return sizes;
}

class CrossEntropyOp : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override { at::manual_seed(4); }
};

TEST_P(CrossEntropyOp, LossAndGradientMatchTheDefinition) {
  const Sizes& s = GetParam();
  const at::Tensor logits = random(logits_sizes(s)).mul(3);
  const at::Tensor targets = random_indices(s.classes, s.targets);
  const auto loss_of = [&](const at::Tensor& p) {
    return -at::log_softmax(p, -1).gather(-1, targets.unsqueeze(-1)).mean().item<double>();
  };
  const at::Tensor buffer = logits.clone();
  const CrossEntropyResult result = ops::cross_entropy(buffer, targets);
  EXPECT_EQ(result.loss.dim(), 0);
  EXPECT_NEAR(result.loss.item<double>(), loss_of(logits), 1e-12);
  const at::Tensor gradient = cross_entropy_backward(at::scalar_tensor(0.5, at::kDouble), buffer,
                                                     targets, result.logsumexp);
  // By definition (softmax - one hot) / rows; one class has no gradient at all.
  const at::Tensor one_hot = at::zeros_like(logits).scatter_(-1, targets.unsqueeze(-1), 1.0);
  const at::Tensor expected =
      (at::softmax(logits, -1) - one_hot) * (0.5 / static_cast<double>(targets.numel()));
  EXPECT_LE((gradient - expected).abs().max().item<double>(), 1e-15);
  EXPECT_LE((gradient - numeric_gradient(loss_of, logits).mul(0.5)).abs().max().item<double>(),
            1e-9);
}

TEST_P(CrossEntropyOp, UsesOneBuffer) {
  const Sizes& s = GetParam();
  const at::Tensor logits = random(logits_sizes(s), at::kFloat);
  const at::Tensor targets = random_indices(s.classes, s.targets);
  const at::Tensor before = logits.clone();
  const void* address = logits.const_data_ptr();
  const CrossEntropyResult result = ops::cross_entropy(logits, targets);
  EXPECT_EQ(result.loss.scalar_type(), at::kFloat);
  EXPECT_EQ(result.logsumexp.numel(), targets.numel());
  EXPECT_TRUE(logits.equal(before)) << "the backward still needs the logits";
  const at::Tensor gradient =
      cross_entropy_backward(at::ones({}), logits, targets, result.logsumexp);
  EXPECT_EQ(gradient.const_data_ptr(), address);
  EXPECT_EQ(gradient.sizes(), logits.sizes());
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyOp,
                         ::testing::Values(Sizes{{2, 3}, 5}, Sizes{{1, 1}, 1}, Sizes{{1, 1}, 7},
                                           Sizes{{9}, 33}, Sizes{{2, 3}, 67}));

TEST(CrossEntropyOpLarge, VocabularySizedRows) {
  at::manual_seed(8);
  const at::Tensor logits = random({3, 50257}, at::kFloat).mul(5);
  const at::Tensor targets = random_indices(50257, {3});
  const at::Tensor wide = logits.to(at::kDouble);
  const at::Tensor own = at::log_softmax(wide, -1).gather(-1, targets.unsqueeze(-1));
  const CrossEntropyResult result = ops::cross_entropy(logits, targets);
  EXPECT_TRUE(close_to(result.loss, -own.mean(), 2e-7));
  const at::Tensor one_hot = at::zeros_like(wide).scatter_(-1, targets.unsqueeze(-1), 1.0);
  EXPECT_TRUE(close_to(cross_entropy_backward(at::ones({}), logits, targets, result.logsumexp),
                       (at::softmax(wide, -1) - one_hot) / 3.0, 1e-6));
}

TEST(CrossEntropyOpLarge, HugeLogitsStayFinite) {
  const at::Tensor logits = at::tensor({1000.0f, -1000.0f, 0.0f}).view({1, 3});
  EXPECT_EQ(ops::cross_entropy(logits, at::tensor({1}, at::kLong)).loss.item<float>(), 2000.0f);
}

TEST(CrossEntropyOpLarge, InfinitelyUnlikelyClassesHaveNoGradient) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor logits = at::tensor({1.0f, -infinity, 1.0f}).view({1, 3});
  const at::Tensor targets = at::tensor({0}, at::kLong);
  const CrossEntropyResult result = ops::cross_entropy(logits, targets);
  EXPECT_FLOAT_EQ(result.loss.item<float>(), std::log(2.0f));
  const at::Tensor gradient =
      cross_entropy_backward(at::ones({}), logits, targets, result.logsumexp);
  EXPECT_TRUE(gradient.equal(at::tensor({-0.5f, 0.0f, 0.5f}).view({1, 3})));
}

TEST(CrossEntropyOpLarge, NaNIsSeen) {
  const at::Tensor logits = at::tensor({1.0f, std::nanf(""), 1.0f}).view({1, 3});
  EXPECT_TRUE(
      std::isnan(ops::cross_entropy(logits, at::tensor({0}, at::kLong)).loss.item<float>()));
}

TEST(CrossEntropyOpLarge, NamesABadTarget) {
  for (std::int64_t bad : {std::int64_t{3}, std::int64_t{-1}}) {
    const at::Tensor targets = at::tensor({std::int64_t{0}, bad}, at::kLong);
    EXPECT_THROW(ops::cross_entropy(random({2, 3}), targets), InvariantError);
  }
  EXPECT_THROW(ops::cross_entropy(random({2, 3}), at::zeros({3}, at::kLong)), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
