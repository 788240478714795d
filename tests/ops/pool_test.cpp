#include "common/ops/pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Case {
  std::vector<std::int64_t> x;
  PoolWindow window;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << at::IntArrayRef(c.x) << " kernel " << at::IntArrayRef(c.window.kernel);
}

class PoolOp : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    x_ = random(GetParam().x);
    leaf_ = x_.detach().requires_grad_(true);
  }
  const PoolWindow& window() const { return GetParam().window; }

  at::Tensor x_, leaf_;
};

at::Tensor aten_max(const at::Tensor& x, const PoolWindow& w) {
  if (w.kernel.size() == 1) return at::max_pool1d(x, w.kernel, w.stride, w.padding);
  if (w.kernel.size() == 2) return at::max_pool2d(x, w.kernel, w.stride, w.padding);
  return at::max_pool3d(x, w.kernel, w.stride, w.padding);
}
at::Tensor aten_avg(const at::Tensor& x, const PoolWindow& w) {
  if (w.kernel.size() == 1) return at::avg_pool1d(x, w.kernel, w.stride, w.padding);
  if (w.kernel.size() == 2) return at::avg_pool2d(x, w.kernel, w.stride, w.padding);
  return at::avg_pool3d(x, w.kernel, w.stride, w.padding);
}

TEST_P(PoolOp, MaximaEqualAten) {
  const MaxPoolResult result = max_pool(x_, window());
  const at::Tensor expected = aten_max(leaf_, window());
  EXPECT_TRUE(result.y.equal(expected));
  EXPECT_EQ(result.indices.sizes(), result.y.sizes());
  EXPECT_TRUE(x_.flatten(2).gather(2, result.indices.flatten(2)).equal(result.y.flatten(2)));
  const at::Tensor grad = random(expected.sizes());
  expected.backward(grad);
  EXPECT_TRUE(
      close_to(max_pool_backward(grad, result.indices, x_.sizes(), window()), leaf_.grad(), 1e-15));
}

TEST_P(PoolOp, MeansEqualAten) {
  const at::Tensor result = avg_pool(x_, window()), expected = aten_avg(leaf_, window());
  EXPECT_TRUE(close_to(result, expected, 1e-15));
  const at::Tensor grad = random(expected.sizes());
  expected.backward(grad);
  EXPECT_TRUE(close_to(avg_pool_backward(grad, x_.sizes(), window()), leaf_.grad(), 1e-15));
}

TEST_P(PoolOp, GradientsMatchFiniteDifferences) {
  const at::Tensor grad = random(avg_pool(x_, window()).sizes());
  const auto maximum = [&](const at::Tensor& p) {
    return weighted_sum(max_pool(p, window()).y, grad);
  };
  const auto mean = [&](const at::Tensor& p) { return weighted_sum(avg_pool(p, window()), grad); };
  const at::Tensor indices = max_pool(x_, window()).indices;
  EXPECT_TRUE(close_to(max_pool_backward(grad, indices, x_.sizes(), window()),
                       numeric_gradient(maximum, x_, 1e-7), 1e-7));
  EXPECT_TRUE(
      close_to(avg_pool_backward(grad, x_.sizes(), window()), numeric_gradient(mean, x_), 1e-8));
}

TEST_P(PoolOp, TheMeanOfEverything) {
  const at::Tensor y = global_avg_pool(x_);
  const at::Tensor expected = leaf_.flatten(2).sum(2) / static_cast<double>(leaf_[0][0].numel());
  EXPECT_TRUE(close_to(y, expected, 1e-14));
  const at::Tensor grad = random(y.sizes());
  expected.backward(grad);
  EXPECT_TRUE(close_to(global_avg_pool_backward(grad, x_.sizes()), leaf_.grad(), 1e-14));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PoolOp,
                         ::testing::Values(Case{{2, 3, 9}, PoolWindow::tiles({2})},
                                           Case{{1, 1, 4}, {{3}, {1}, {1}}},
                                           Case{{2, 3, 7, 6}, PoolWindow::tiles({2, 2})},
                                           Case{{1, 2, 5, 5}, {{3, 3}, {2, 2}, {1, 1}}},
                                           Case{{3, 1, 1, 8}, PoolWindow::tiles({1, 2})},
                                           Case{{2, 2, 4, 5, 6}, PoolWindow::tiles({2, 2, 2})},
                                           Case{{1, 3, 3, 3, 3}, {{2, 3, 2}, {1, 2, 1}, {1, 0, 1}}},
                                           Case{{2, 1, 1, 1, 1}, PoolWindow::tiles({1, 1, 1})}));

TEST(PoolOpMemory, TheGradientOfTheMeanIsAView) {
  const at::Tensor dx = global_avg_pool_backward(random({2, 3}), {2, 3, 100, 100});
  EXPECT_EQ(dx.storage().nbytes(), 6 * sizeof(double));
}

TEST(PoolOpWindow, IsOneNumberPerSpatialDimension) {
  const at::Tensor x = random({1, 1, 4, 4});
  EXPECT_THROW(max_pool(x, PoolWindow::tiles({2})), InvariantError);
  EXPECT_THROW(avg_pool(x, PoolWindow{{2, 2}, {2}, {0, 0}}), InvariantError);
  EXPECT_THROW(avg_pool(x, PoolWindow{}), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
