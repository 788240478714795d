#include "common/ops/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "tests/support/numeric.h"
#include "tests/support/reference_llama.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::int64_t batch, length, heads, size;
};

class RotaryOp : public ::testing::TestWithParam<Sizes> {};

TEST_P(RotaryOp, ValuesAndGradientEqualAutograd) {
  at::manual_seed(4);
  const Sizes s = GetParam();
  const at::Tensor x = random({s.batch, s.length, s.heads * s.size}), grad = random(x.sizes());
  const at::Tensor leaf = x.clone().requires_grad_(true);
  const at::Tensor expected =
      rotary_of(leaf.view({s.batch, s.length, s.heads, s.size}).transpose(1, 2), 10000)
          .transpose(1, 2)
          .reshape(x.sizes());
  expected.backward(grad);
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-6}}) {
    const at::Tensor table = rotary_table(s.length + 3, s.size, 10000, type);
    const at::Tensor consumed = x.to(type, false, /*copy=*/true);
    const at::Tensor turned = rotary(consumed, table);
    EXPECT_TRUE(close_to(turned, expected, tolerance));
    EXPECT_EQ(turned.const_data_ptr(), consumed.const_data_ptr());
    const at::Tensor given = grad.to(type), before = given.clone();
    EXPECT_TRUE(close_to(rotary_backward(given, table), leaf.grad(), tolerance));
    EXPECT_TRUE(given.equal(before));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RotaryOp,
                         ::testing::Values(Sizes{2, 5, 3, 4}, Sizes{1, 1, 1, 2}, Sizes{3, 1, 2, 6},
                                           Sizes{1, 9, 1, 10}, Sizes{2, 40, 5, 34}));

TEST(RotaryTableOp, HoldsAnglesByPosition) {
  const at::Tensor table = rotary_table(3, 4, 100, at::kDouble);
  // Frequencies 1 and 1/10.
  const double expected[3][4] = {{1, 1, 0, 0},
                                 {std::cos(1), std::cos(0.1), std::sin(1), std::sin(0.1)},
                                 {std::cos(2), std::cos(0.2), std::sin(2), std::sin(0.2)}};
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(table[t][i].item<double>(), expected[t][i], 1e-15) << t << " " << i;
    }
  }
}

TEST(RotaryOpCases, ScoresDependOnTheDistanceAlone) {
  at::manual_seed(2);
  const at::Tensor table = rotary_table(12, 8, 10000, at::kDouble);
  const at::Tensor q = rotary(random({1, 1, 8}).expand({1, 12, 8}).contiguous(), table);
  const at::Tensor k = rotary(random({1, 1, 8}).expand({1, 12, 8}).contiguous(), table);
  const at::Tensor scores = at::matmul(q[0], k[0].t());
  for (int distance = 0; distance < 8; ++distance) {
    EXPECT_NEAR(scores[distance][0].item<double>(), scores[distance + 4][4].item<double>(), 1e-12);
  }
  EXPECT_GT(std::abs(scores[0][0].item<double>() - scores[5][0].item<double>()), 1e-3);
}

TEST(RotaryOpCases, RefusesWhatDoesNotFit) {
  const at::Tensor table = rotary_table(4, 6, 10000, at::kDouble);
  EXPECT_THROW(rotary(random({1, 5, 6}), table), InvariantError);
  EXPECT_THROW(rotary(random({1, 4, 8}), table), InvariantError);
  EXPECT_THROW(rotary(random({1, 4, 6}, at::kFloat), table), InvariantError);
  EXPECT_THROW(rotary(random({4, 2, 6}).transpose(0, 1), table), InvariantError);
  EXPECT_THROW(rotary_table(4, 5, 10000, at::kDouble), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
