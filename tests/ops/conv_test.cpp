#include "common/ops/conv.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"
#include "tests/support/reference_conv.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::vector<std::int64_t> x;  ///< N, channels, spatial...
  std::int64_t out;
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
};
void PrintTo(const Sizes& s, std::ostream* out) {
  *out << at::IntArrayRef(s.x) << " to " << s.out << ", kernel " << s.kernel << ", stride "
       << s.stride << ", padding " << s.padding;
}

class ConvOp : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);  // as ranks have; how a sum is cut among threads would change bits
    make(at::kDouble);
  }
  void make(at::ScalarType type) {
    at::manual_seed(7);
    const Sizes& s = GetParam();
    const std::size_t dims = s.x.size() - 2;
    steps_ = {std::vector<std::int64_t>(dims, s.stride),
              std::vector<std::int64_t>(dims, s.padding)};
    std::vector<std::int64_t> sizes = {s.out, s.x[1]};
    sizes.insert(sizes.end(), dims, s.kernel);
    x_ = random(s.x, type);
    w_ = random(sizes, type);
    b_ = random({s.out}, type);
    grad_ = random(ops::conv(x_, w_, b_, steps_).sizes(), type);
  }
  at::Tensor reference(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    return conv_of(x, w, b, GetParam().stride, GetParam().padding);
  }
  /// Output and gradients beside those that autograd finds for the reference in fp64.
  void expect_equal_reference(double tolerance) {
    const at::Tensor x = x_.to(at::kDouble).detach().requires_grad_(true);
    const at::Tensor w = w_.to(at::kDouble).detach().requires_grad_(true);
    const at::Tensor b = b_.to(at::kDouble).detach().requires_grad_(true);
    const at::Tensor y = reference(x, w, b);
    y.backward(grad_.to(at::kDouble));
    EXPECT_TRUE(close_to(ops::conv(x_, w_, b_, steps_), y, tolerance));
    EXPECT_TRUE(close_to(conv_input_grad(grad_, x_, w_, steps_), x.grad(), tolerance));
    const at::Tensor dw = undefined_target(w_.sizes(), w_.scalar_type());
    const at::Tensor db = undefined_target(b_.sizes(), b_.scalar_type());
    conv_weight_grad(grad_, x_, dw, false, steps_);
    conv_bias_grad(grad_, db, false);
    EXPECT_TRUE(close_to(dw, w.grad(), tolerance));
    EXPECT_TRUE(close_to(db, b.grad(), tolerance));
  }

  ConvSteps steps_;
  at::Tensor x_, w_, b_, grad_;
};

TEST_P(ConvOp, EqualsSlicesAndProducts) { expect_equal_reference(1e-12); }

TEST_P(ConvOp, EqualsSlicesAndProductsInSinglePrecision) {
  make(at::kFloat);
  expect_equal_reference(2e-6);
}

TEST_P(ConvOp, AccumulatingAddsTheWholeGradientOnce) {
  make(at::kFloat);
  const at::Tensor before_w = random(w_.sizes(), at::kFloat);
  const at::Tensor before_b = random(b_.sizes(), at::kFloat);
  const at::Tensor once_w = undefined_target(w_.sizes(), at::kFloat);
  const at::Tensor once_b = undefined_target(b_.sizes(), at::kFloat);
  conv_weight_grad(grad_, x_, once_w, false, steps_);
  conv_bias_grad(grad_, once_b, false);
  const at::Tensor sum_w = before_w.clone(), sum_b = before_b.clone();
  conv_weight_grad(grad_, x_, sum_w, true, steps_);
  conv_bias_grad(grad_, sum_b, true);
  EXPECT_TRUE(sum_w.equal(before_w + once_w));
  EXPECT_TRUE(sum_b.equal(before_b + once_b));
}

/// The same values at `offset` units of 64 bytes (what every strategy's memory is aligned to).
at::Tensor moved(const at::Tensor& values, std::int64_t offset) {
  const at::Tensor flat = at::empty({values.numel() + 16 * offset}, values.options());
  return flat.narrow(0, 16 * offset, values.numel()).view(values.sizes()).copy_(values);
}

TEST_P(ConvOp, TheSameBitsWhereverTheValuesLie) {
  make(at::kFloat);
  const at::Tensor y = ops::conv(x_, w_, b_, steps_);
  const at::Tensor dx = conv_input_grad(grad_, x_, w_, steps_);
  const at::Tensor dw = at::empty_like(w_), db = at::empty_like(b_);
  conv_weight_grad(grad_, x_, dw, false, steps_);
  conv_bias_grad(grad_, db, false);
  for (std::int64_t i = 0; i < 12; ++i) {
    const at::Tensor x = moved(x_, i), w = moved(w_, 3 * i % 8), grad = moved(grad_, 5 * i % 7);
    const at::Tensor dw_i = moved(w_, i % 5), db_i = moved(b_, i % 3);
    EXPECT_TRUE(ops::conv(x, w, b_, steps_).equal(y));
    EXPECT_TRUE(conv_input_grad(grad, x, w, steps_).equal(dx));
    conv_weight_grad(grad, x, dw_i, false, steps_);
    conv_bias_grad(grad, db_i, false);
    EXPECT_TRUE(dw_i.equal(dw));
    EXPECT_TRUE(db_i.equal(db));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ConvOp,
    ::testing::Values(Sizes{{2, 3, 9}, 4, 3, 1, 1}, Sizes{{1, 1, 5}, 1, 3, 1, 0},
                      Sizes{{3, 2, 8}, 5, 3, 2, 1}, Sizes{{2, 3, 7, 5}, 4, 3, 1, 1},
                      Sizes{{1, 5, 6, 6}, 3, 3, 2, 0}, Sizes{{4, 1, 5, 4}, 7, 2, 2, 0},
                      Sizes{{2, 3, 3, 3}, 2, 1, 1, 0}, Sizes{{3, 4, 1, 1}, 5, 3, 1, 1},
                      Sizes{{2, 2, 4, 3, 5}, 3, 3, 1, 1}, Sizes{{1, 3, 5, 5, 5}, 2, 3, 2, 0},
                      Sizes{{2, 1, 3, 3, 3}, 1, 3, 1, 0}));

TEST(ConvOpMemory, WritesOnlyTheTarget) {
  const ConvSteps steps{{1, 1}, {1, 1}};
  const at::Tensor flat = at::full({128}, -1.0, at::kDouble);
  const at::Tensor target = flat.narrow(0, 16, 54).view({2, 3, 3, 3});
  const double* address = target.const_data_ptr<double>();
  conv_weight_grad(random({2, 2, 4, 4}), random({2, 3, 4, 4}), target, false, steps);
  EXPECT_EQ(target.const_data_ptr<double>(), address);
  EXPECT_TRUE(flat.narrow(0, 0, 16).eq(-1).all().item<bool>());
  EXPECT_TRUE(flat.narrow(0, 70, 58).eq(-1).all().item<bool>());
  EXPECT_FALSE(target.eq(-1).any().item<bool>());
}

TEST(ConvOpMemory, OfTheInputTheInputGradientTakesOnlySizes) {
  const ConvSteps steps{{2, 2}, {1, 1}};
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = random({2, 3, 8, 7}, type), w = random({4, 3, 3, 3}, type);
    const at::Tensor grad = random(ops::conv(x, w, {}, steps).sizes(), type);
    const at::Tensor nothing = at::full_like(x, std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(conv_input_grad(grad, nothing, w, steps).equal(conv_input_grad(grad, x, w, steps)));
  }
}

TEST(ConvOpMemory, AnExpandedGradientWorks) {
  const ConvSteps steps{{1, 1}, {0, 0}};
  const at::Tensor x = random({2, 3, 5, 5}), w = random({4, 3, 3, 3});
  const at::Tensor ones = at::ones({1}, at::kDouble).expand({2, 4, 3, 3});
  const at::Tensor same = ones.contiguous();
  const at::Tensor dw = undefined_target(w.sizes()), expected = undefined_target(w.sizes());
  const at::Tensor db = undefined_target({4});
  conv_weight_grad(ones, x, dw, false, steps);
  conv_weight_grad(same, x, expected, false, steps);
  conv_bias_grad(ones, db, false);
  EXPECT_TRUE(dw.equal(expected));
  EXPECT_TRUE(db.eq(18).all().item<bool>());
  EXPECT_TRUE(conv_input_grad(ones, x, w, steps).equal(conv_input_grad(same, x, w, steps)));
}

TEST(ConvOpSteps, AreOneNumberPerSpatialDimension) {
  const at::Tensor x = random({1, 1, 4, 4}), w = random({1, 1, 3, 3});
  EXPECT_THROW(ops::conv(x, w, {}, ConvSteps{{1}, {1}}), InvariantError);
  EXPECT_THROW(ops::conv(x, w, {}, ConvSteps{{1, 1}, {1}}), InvariantError);
  EXPECT_THROW(ops::conv(x, w, {}, ConvSteps{{}, {}}), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
