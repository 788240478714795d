#include "common/ops/elementwise.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

TEST(GeluOp, IsTheTanhForm) {
  for (double x : {-3.0, -0.5, 0.0, 0.7, 2.5}) {
    const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double expected = 0.5 * x * (1 + std::tanh(inner));
    EXPECT_NEAR(ops::gelu(at::tensor({x}, at::kDouble)).item<double>(), expected, 1e-14);
  }
}

TEST(ReluOp, IsInTheMemoryOfItsInput) {
  const at::Tensor x = at::tensor({-2.0, -0.0, 0.0, 0.5, 3.0}, at::kDouble);
  const at::Tensor grad = at::tensor({1.0, 2.0, 3.0, 4.0, 5.0}, at::kDouble);
  const at::Tensor y = ops::relu(x);
  EXPECT_EQ(y.const_data_ptr<double>(), x.const_data_ptr<double>());
  EXPECT_TRUE(y.equal(at::tensor({0.0, 0.0, 0.0, 0.5, 3.0}, at::kDouble)));
  EXPECT_TRUE(
      ops::relu_backward(grad, y).equal(at::tensor({0.0, 0.0, 0.0, 4.0, 5.0}, at::kDouble)));
}

TEST(GeluOp, GradientMatchesFiniteDifferences) {
  at::manual_seed(2);
  const at::Tensor x = random({3, 1, 11}).mul(2), grad = random({3, 1, 11});
  const auto f = [&](const at::Tensor& p) { return weighted_sum(ops::gelu(p), grad); };
  EXPECT_TRUE(close_to(ops::gelu_backward(grad, x), numeric_gradient(f, x), 1e-8));
}

TEST(ResidualAddOp, SumsIntoTheBranch) {
  const at::Tensor x = random({2, 3}), branch = random({2, 3});
  const at::Tensor expected = x + branch, x_before = x.clone();
  const at::Tensor sum = ops::residual_add(x, branch);
  EXPECT_TRUE(sum.equal(expected));
  EXPECT_TRUE(x.equal(x_before));
  EXPECT_EQ(sum.const_data_ptr(), branch.const_data_ptr());
  EXPECT_THROW(ops::residual_add(x, random({3})), InvariantError);
}

TEST(AddToEachOp, AddsTheSameRowsToEveryPart) {
  const at::Tensor x = random({4, 2, 3}), rows = random({2, 3}), grad = random({4, 2, 3});
  const at::Tensor expected = x + rows;
  const auto f = [&](const at::Tensor& p) {
    return weighted_sum(ops::add_to_each(x.clone(), p), grad);
  };
  EXPECT_TRUE(close_to(add_to_each_rows_grad(grad), numeric_gradient(f, rows), 1e-8));
  const at::Tensor sum = ops::add_to_each(x, rows);
  EXPECT_TRUE(sum.equal(expected));
  EXPECT_EQ(sum.const_data_ptr(), x.const_data_ptr());
}

}  // namespace
}  // namespace shardbench::ops
