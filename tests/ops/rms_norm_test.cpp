#include "common/ops/rms_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

constexpr double kEps = 1e-5;

at::Tensor by_definition(const at::Tensor& x, const at::Tensor& w) {
  return x / (x.square().mean(-1, true) + kEps).sqrt() * w;
}

class RmsNormOp : public ::testing::TestWithParam<std::vector<std::int64_t>> {
 protected:
  void SetUp() override {
    at::manual_seed(8);
    x_ = random(GetParam());
    w_ = random({GetParam().back()});
    grad_ = random(GetParam());
  }
  /// By ATen's autograd, in fp64.
  void expect(at::Tensor& dx, at::Tensor& dw) const {
    const at::Tensor x = x_.clone().requires_grad_(true), w = w_.clone().requires_grad_(true);
    by_definition(x, w).backward(grad_);
    dx = x.grad();
    dw = w.grad();
  }
  at::Tensor x_, w_, grad_;
};

TEST_P(RmsNormOp, ValuesAndGradientsEqualAutograd) {
  at::Tensor dx, dw;
  expect(dx, dw);
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-6}}) {
    const at::Tensor x = x_.to(type), w = w_.to(type), grad = grad_.to(type);
    const RmsNormResult forward = rms_norm(x, w, kEps);
    EXPECT_TRUE(close_to(forward.y, by_definition(x_, w_), tolerance));
    EXPECT_EQ(forward.rrms.numel() * x.size(-1), x.numel());
    EXPECT_TRUE(close_to(rms_norm_input_grad(grad, x, forward.rrms, w), dx, 4 * tolerance));
    const at::Tensor target = undefined_target(w.sizes(), type);
    rms_norm_weight_grad(grad, x, forward.rrms, target, false);
    EXPECT_TRUE(close_to(target, dw, 4 * tolerance));
    rms_norm_weight_grad(grad, x, forward.rrms, target, true);
    EXPECT_TRUE(close_to(target, dw * 2, 4 * tolerance));
  }
}

TEST_P(RmsNormOp, TakesWhatIsNotContiguous) {
  const at::Tensor w = w_;
  const at::Tensor x = x_.transpose(0, -1).contiguous().transpose(0, -1);
  const at::Tensor grad = grad_.transpose(0, -1).contiguous().transpose(0, -1);
  const RmsNormResult forward = rms_norm(x, w, kEps);
  EXPECT_TRUE(forward.y.equal(rms_norm(x_, w, kEps).y));
  EXPECT_TRUE(rms_norm_input_grad(grad, x, forward.rrms, w)
                  .equal(rms_norm_input_grad(grad_, x_, forward.rrms, w)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormOp,
                         ::testing::Values(std::vector<std::int64_t>{2, 3, 5},
                                           std::vector<std::int64_t>{1, 1, 2},
                                           std::vector<std::int64_t>{4, 33},
                                           std::vector<std::int64_t>{2, 9, 16},
                                           std::vector<std::int64_t>{7, 250}));

TEST(RmsNormOpCases, EpsBoundsARowOfZeros) {
  const at::Tensor x = at::zeros({2, 3}, at::kFloat), w = at::ones({3}, at::kFloat);
  const RmsNormResult forward = rms_norm(x, w, 1e-4);
  EXPECT_TRUE(forward.y.equal(x));
  EXPECT_TRUE(close_to(forward.rrms, at::full({2}, 100.0), 1e-6));
  EXPECT_TRUE(close_to(rms_norm_input_grad(w.expand({2, 3}), x, forward.rrms, w),
                       at::full({2, 3}, 100.0), 1e-6));
}

TEST(RmsNormOpCases, OfOneElementOnlyTheSignIsLeft) {
  const at::Tensor x = at::tensor({-3.0f, 2.0f}).view({2, 1}), w = at::tensor({0.5f});
  const RmsNormResult forward = rms_norm(x, w, kEps);
  EXPECT_TRUE(close_to(forward.y, at::tensor({-0.5, 0.5}).view({2, 1}), 1e-5));
  const at::Tensor dx = rms_norm_input_grad(at::ones_like(x), x, forward.rrms, w);
  EXPECT_LT(dx.abs().max().item<double>(), 1e-6);
}

TEST(RmsNormOpCases, NoRowsGiveNoOutputAndAZeroWeightGradient) {
  const at::Tensor x = random({0, 4}), w = random({4});
  const RmsNormResult forward = rms_norm(x, w, kEps);
  EXPECT_EQ(forward.y.sizes(), x.sizes());
  const at::Tensor target = undefined_target({4});
  rms_norm_weight_grad(x, x, forward.rrms, target, false);
  EXPECT_TRUE(target.eq(0).all().item<bool>());
}

TEST(RmsNormOpCases, RefusesAnotherWidth) {
  EXPECT_THROW(rms_norm(random({2, 4}), random({5}), kEps), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
