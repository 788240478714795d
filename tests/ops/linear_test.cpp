#include "common/ops/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::vector<std::int64_t> x;
  std::int64_t out;
};

class LinearOp : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_P(LinearOp, GradientsMatchFiniteDifferences) {
  const auto& [sizes, out] = GetParam();
  const std::int64_t in = sizes.back();
  const at::Tensor x = random(sizes), w = random({out, in}), b = random({out});
  const at::Tensor grad = random(ops::linear(x, w, b).sizes());

  const auto along_x = [&](const at::Tensor& p) {
    return weighted_sum(ops::linear(p, w, b), grad);
  };
  const auto along_w = [&](const at::Tensor& p) {
    return weighted_sum(ops::linear(x, p, b), grad);
  };
  const auto along_b = [&](const at::Tensor& p) {
    return weighted_sum(ops::linear(x, w, p), grad);
  };
  EXPECT_TRUE(close_to(linear_input_grad(grad, w), numeric_gradient(along_x, x), 1e-7));
  const at::Tensor dw = undefined_target({out, in}), db = undefined_target({out});
  linear_weight_grad(grad, x, dw, false);
  linear_bias_grad(grad, db, false);
  EXPECT_TRUE(close_to(dw, numeric_gradient(along_w, w), 1e-7));
  EXPECT_TRUE(close_to(db, numeric_gradient(along_b, b), 1e-7));
}

TEST_P(LinearOp, EqualsAtenInSinglePrecision) {
  const auto& [sizes, out] = GetParam();
  const std::int64_t in = sizes.back();
  const at::Tensor x = random(sizes, at::kFloat), w = random({out, in}, at::kFloat),
                   b = random({out}, at::kFloat);
  EXPECT_TRUE(close_to(ops::linear(x, w, b), at::linear(x, w, b), 1e-6));
  EXPECT_TRUE(close_to(ops::linear(x, w, {}), at::linear(x, w), 1e-6));
  EXPECT_EQ(ops::linear(x, w, b).scalar_type(), at::kFloat);
}

TEST_P(LinearOp, AccumulatesIntoWhatIsThere) {
  const auto& [sizes, out] = GetParam();
  const std::int64_t in = sizes.back();
  const at::Tensor x = random(sizes), w = random({out, in});
  const at::Tensor grad = random(ops::linear(x, w, {}).sizes());
  const at::Tensor before_w = random({out, in}), before_b = random({out});
  const at::Tensor once_w = undefined_target({out, in}), once_b = undefined_target({out});
  linear_weight_grad(grad, x, once_w, false);
  linear_bias_grad(grad, once_b, false);
  const at::Tensor sum_w = before_w.clone(), sum_b = before_b.clone();
  linear_weight_grad(grad, x, sum_w, true);
  linear_bias_grad(grad, sum_b, true);
  EXPECT_TRUE(close_to(sum_w, before_w + once_w, 1e-14));
  EXPECT_TRUE(close_to(sum_b, before_b + once_b, 1e-14));
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearOp,
                         ::testing::Values(Sizes{{2, 3, 5}, 4}, Sizes{{1, 1, 1}, 1},
                                           Sizes{{7, 3}, 2}, Sizes{{1, 5, 13}, 17},
                                           Sizes{{3, 1, 2}, 1}));

TEST(LinearOpMemory, WritesOnlyTheTarget) {
  const at::Tensor flat = at::full({64}, -1.0, at::kDouble);
  const at::Tensor target = flat.narrow(0, 16, 6).view({2, 3});
  const double* address = target.const_data_ptr<double>();
  linear_weight_grad(random({5, 2}), random({5, 3}), target, false);
  EXPECT_EQ(target.const_data_ptr<double>(), address);
  EXPECT_TRUE(flat.narrow(0, 0, 16).eq(-1).all().item<bool>());
  EXPECT_TRUE(flat.narrow(0, 22, 42).eq(-1).all().item<bool>());
  EXPECT_FALSE(target.eq(-1).any().item<bool>());
}

TEST(LinearOpMemory, AnExpandedGradientWorks) {
  const at::Tensor x = random({2, 3, 4}), w = random({5, 4});
  const at::Tensor ones = at::ones({1}, at::kDouble).expand({2, 3, 5});
  const at::Tensor dw = undefined_target({5, 4}), db = undefined_target({5});
  linear_weight_grad(ones, x, dw, false);
  linear_bias_grad(ones, db, false);
  EXPECT_TRUE(close_to(dw, x.sum(at::IntArrayRef{0, 1}).expand({5, 4}), 1e-14));
  EXPECT_TRUE(close_to(db, at::full({5}, 6.0, at::kDouble), 1e-14));
  EXPECT_TRUE(close_to(linear_input_grad(ones, w), w.sum(0).expand({2, 3, 4}), 1e-14));
}

TEST(LinearOpMemory, NoRowsGiveZeroGradients) {
  const at::Tensor x = random({0, 3, 4}), w = random({5, 4}), b = random({5});
  EXPECT_EQ(ops::linear(x, w, b).sizes(), at::IntArrayRef({0, 3, 5}));
  const at::Tensor grad = random({0, 3, 5});
  const at::Tensor dw = undefined_target({5, 4}), db = undefined_target({5});
  linear_weight_grad(grad, x, dw, false);
  linear_bias_grad(grad, db, false);
  EXPECT_TRUE(dw.eq(0).all().item<bool>());
  EXPECT_TRUE(db.eq(0).all().item<bool>());
}

}  // namespace
}  // namespace shardbench::ops
