#include "common/ops/swiglu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

class SwigluOp : public ::testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(SwigluOp, ValuesAndGradientsEqualAutograd) {
  at::manual_seed(14);
  const at::Tensor gate = random(GetParam()), up = random(GetParam()), grad = random(GetParam());
  const at::Tensor g = gate.clone().requires_grad_(true), u = up.clone().requires_grad_(true);
  const at::Tensor expected = g * at::sigmoid(g) * u;
  expected.backward(grad);
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-6}}) {
    const at::Tensor a = gate.to(type), b = up.to(type), d = grad.to(type);
    EXPECT_TRUE(close_to(swiglu(a, b), expected, tolerance));
    const SwigluGrads grads = swiglu_backward(d, a, b, true, true);
    EXPECT_TRUE(close_to(grads.gate, g.grad(), tolerance));
    EXPECT_TRUE(close_to(grads.up, u.grad(), tolerance));
    EXPECT_TRUE(d.equal(grad.to(type)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SwigluOp,
                         ::testing::Values(std::vector<std::int64_t>{2, 3, 5},
                                           std::vector<std::int64_t>{1},
                                           std::vector<std::int64_t>{0, 4},
                                           std::vector<std::int64_t>{3, 77}));

TEST(SwigluOpCases, GivesOnlyWhatIsAskedFor) {
  const at::Tensor gate = random({3, 4}), up = random({3, 4}), grad = random({3, 4});
  const SwigluGrads all = swiglu_backward(grad, gate, up, true, true);
  const SwigluGrads only_gate = swiglu_backward(grad, gate, up, true, false);
  const SwigluGrads only_up = swiglu_backward(grad, gate, up, false, true);
  EXPECT_TRUE(only_gate.gate.equal(all.gate));
  EXPECT_FALSE(only_gate.up.defined());
  EXPECT_TRUE(only_up.up.equal(all.up));
  EXPECT_FALSE(only_up.gate.defined());
}

TEST(SwigluOpCases, LargeGatesNeitherOverflowNorGiveNan) {
  const at::Tensor gate = at::tensor({-200.0f, 0.0f, 200.0f}), up = at::ones({3}, at::kFloat);
  EXPECT_TRUE(close_to(swiglu(gate, up), at::tensor({0.0, 0.0, 200.0}), 1e-7));
  const SwigluGrads grads = swiglu_backward(up, gate, up, true, true);
  EXPECT_TRUE(close_to(grads.gate, at::tensor({0.0, 0.5, 1.0}), 1e-7));
}

TEST(SwigluOpCases, RefusesAnotherShape) {
  EXPECT_THROW(swiglu(random({2, 3}), random({3})), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
