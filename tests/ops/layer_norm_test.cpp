#include "common/ops/layer_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

class LayerNormOp : public ::testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(LayerNormOp, GradientsMatchFiniteDifferences) {
  at::manual_seed(5);
  const std::vector<std::int64_t>& sizes = GetParam();
  const at::Tensor x = random(sizes), w = random({sizes.back()}), b = random({sizes.back()});
  const at::Tensor grad = random(sizes);
  const LayerNormResult forward = ops::layer_norm(x, w, b, 1e-5);
  const LayerNormGrads grads =
      ops::layer_norm_backward(grad, x, forward.mean, forward.rstd, w, b, true, true, true);
  const auto along_x = [&](const at::Tensor& p) {
    return weighted_sum(ops::layer_norm(p, w, b, 1e-5).y, grad);
  };
  const auto along_w = [&](const at::Tensor& p) {
    return weighted_sum(ops::layer_norm(x, p, b, 1e-5).y, grad);
  };
  const auto along_b = [&](const at::Tensor& p) {
    return weighted_sum(ops::layer_norm(x, w, p, 1e-5).y, grad);
  };
  EXPECT_TRUE(close_to(grads.x, numeric_gradient(along_x, x), 1e-6));
  EXPECT_TRUE(close_to(grads.weight, numeric_gradient(along_w, w), 1e-7));
  EXPECT_TRUE(close_to(grads.bias, numeric_gradient(along_b, b), 1e-7));
}

TEST_P(LayerNormOp, NormalisesEachRow) {
  const std::vector<std::int64_t>& sizes = GetParam();
  const at::Tensor x = random(sizes), w = random({sizes.back()}), b = random({sizes.back()});
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor expected = centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * w + b;
  EXPECT_TRUE(close_to(ops::layer_norm(x, w, b, 1e-5).y, expected, 1e-12));
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNormOp,
                         ::testing::Values(std::vector<std::int64_t>{2, 3, 5},
                                           std::vector<std::int64_t>{1, 1, 7},
                                           std::vector<std::int64_t>{4, 33},
                                           std::vector<std::int64_t>{3, 2}));

TEST(LayerNormOpMask, GivesOnlyWhatIsAskedFor) {
  const at::Tensor x = random({3, 4}), w = random({4}), b = random({4}), grad = random({3, 4});
  const LayerNormResult f = ops::layer_norm(x, w, b, 1e-5);
  const LayerNormGrads all =
      ops::layer_norm_backward(grad, x, f.mean, f.rstd, w, b, true, true, true);
  const LayerNormGrads only_x =
      ops::layer_norm_backward(grad, x, f.mean, f.rstd, w, b, true, false, false);
  const LayerNormGrads only_bias =
      ops::layer_norm_backward(grad, x, f.mean, f.rstd, w, b, false, false, true);
  EXPECT_TRUE(only_x.x.equal(all.x));
  EXPECT_FALSE(only_x.weight.defined());
  EXPECT_FALSE(only_x.bias.defined());
  EXPECT_TRUE(only_bias.bias.equal(all.bias));
  EXPECT_FALSE(only_bias.x.defined());
}

}  // namespace
}  // namespace shardbench::ops
