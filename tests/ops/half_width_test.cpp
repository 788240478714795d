// Operations in bf16 and fp16 against the same ones in fp32 on the same (widened) inputs: sums are
// made wide and rounded once, and gradients fit targets of another dtype.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/ops/attention.h"
#include "common/ops/batch_norm.h"
#include "common/ops/conv.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/dropout.h"
#include "common/ops/dtype.h"
#include "common/ops/embedding.h"
#include "common/ops/forward_context.h"
#include "common/ops/layer_norm.h"
#include "common/ops/linear.h"
#include "common/ops/linear_candidates.h"
#include "common/ops/pool.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rotary.h"
#include "common/ops/swiglu.h"
#include "common/ops/wide_product.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

class HalfWidth : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { at::manual_seed(5); }

  at::ScalarType type() const { return scalar_type(GetParam()); }
  /// Random numbers that the dtype holds exactly.
  at::Tensor narrow(at::IntArrayRef sizes) const { return random(sizes, at::kFloat).to(type()); }
  /// Whether sums go into `target` as they are.
  bool stays_wide(const at::Tensor& target) const {
    return target.scalar_type() == at::kFloat && has_wide_product(GetParam());
  }
  /// What one rounding may cost, with room for the few that an operation has.
  double rounding() const { return 4 * (GetParam() == DType::kBFloat16 ? 0x1p-8 : 0x1p-11); }
};

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

TEST_P(HalfWidth, LinearByEveryCandidate) {
  for (const auto& [rows, in, out] : {std::tuple{1, 5, 1}, {7, 13, 17}, {33, 70, 129}}) {
    const at::Tensor x = narrow({rows, in}), w = narrow({out, in}), b = narrow({out}),
                     grad = narrow({rows, out});
    for (Candidate candidate : {Candidate::kAten, Candidate::kOneDnnLinear,
                                Candidate::kOneDnnMatmul, Candidate::kWidened}) {
      SCOPED_TRACE(std::string(name_of(candidate)));
      const at::Tensor y = linear_by(candidate, x, w, b);
      EXPECT_EQ(y.scalar_type(), type());
      EXPECT_TRUE(close_to(y, at::addmm(wide(b), wide(x), wide(w).t()), rounding()));
      EXPECT_TRUE(close_to(linear_input_grad_by(candidate, grad, w), at::mm(wide(grad), wide(w)),
                           rounding()));
      const at::Tensor target = undefined_target({out, in}, type());
      const at::Tensor exact = at::mm(wide(grad).t(), wide(x));
      linear_weight_grad_by(candidate, grad, x, target, false);
      EXPECT_TRUE(close_to(target, exact, rounding()));
      linear_weight_grad_by(candidate, grad, x, target, true);
      EXPECT_TRUE(close_to(target, 2 * exact, rounding()));
    }
  }
}

/// A gradient is rounded to the dtype of the computation once, then stored or added as it is; where
/// sums of bf16 go into fp32 as they are, it is not rounded at all.
TEST_P(HalfWidth, LinearGradientsInTargetsOfOtherTypes) {
  const at::Tensor x = narrow({5, 6}), grad = narrow({5, 40});
  const at::Tensor own = undefined_target({40, 6}, type());
  linear_weight_grad(grad, x, own, false);
  const at::Tensor bias = undefined_target({40}, type());
  linear_bias_grad(grad, bias, false);
  for (at::ScalarType target_type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (target_type == type()) continue;
    const at::Tensor target = undefined_target({40, 6}, target_type);
    linear_weight_grad(grad, x, target, false);
    if (stays_wide(target)) {
      const at::Tensor sums = at::mm(wide(grad).t(), wide(x));
      EXPECT_TRUE(close_to(target, sums, 1e-6));
      linear_weight_grad(grad, x, target, true);
      EXPECT_TRUE(close_to(target, sums.mul(2), 2e-6));
    } else {
      EXPECT_TRUE(at::equal(target, own.to(target_type)));
      linear_weight_grad(grad, x, target, true);
      EXPECT_TRUE(at::equal(target, own.to(target_type).add_(own)));
    }
    const at::Tensor sums = undefined_target({40}, target_type);
    linear_bias_grad(grad, sums, false);
    EXPECT_TRUE(at::equal(sums, bias.to(target_type)));
  }
}

/// Blocks of a large weight's gradient lie side by side, whatever their number.
TEST_P(HalfWidth, LinearGradientLargerThanABlock) {
  const at::Tensor x = narrow({2, 9000}), grad = narrow({2, 300});  // 2.7 M elements
  const at::Tensor target = undefined_target({300, 9000}, at::kFloat);
  linear_weight_grad(grad, x, target, false);
  EXPECT_TRUE(close_to(target, at::mm(wide(grad).t(), wide(x)), rounding()));
  EXPECT_NE(at::equal(target, target.to(type()).to(at::kFloat)), stays_wide(target));
}

TEST(WideProduct, OfAnyShapeIsThatOfTheWidenedFactors) {
  if (!has_wide_product(DType::kBFloat16)) GTEST_SKIP() << "no such product on this CPU";
  at::manual_seed(3);
  for (const auto& [rows, out, in] : {std::tuple{1, 1, 1},
                                      {2, 3, 5},
                                      {7, 31, 257},
                                      {8, 33, 256},
                                      {129, 65, 300},
                                      {128, 100, 768}}) {
    SCOPED_TRACE(::testing::Message() << rows << " " << out << " " << in);
    const at::Tensor x = random({rows, in}).to(at::kBFloat16);
    const at::Tensor grad = random({rows, out}).to(at::kBFloat16);
    const at::Tensor exact = at::mm(grad.to(at::kDouble).t(), x.to(at::kDouble));
    const at::Tensor target = undefined_target({out, in}, at::kFloat);
    wide_weight_grad(grad, x, target, false);
    EXPECT_TRUE(close_to(target, exact, 1e-6));
    wide_weight_grad(grad, x, target, true);
    EXPECT_TRUE(close_to(target, exact.mul(2), 1e-6));
  }
  const at::Tensor target = at::ones({3, 4}, at::kFloat);
  const at::Tensor none = at::empty({0, 3}, at::kBFloat16),
                   of_none = at::empty({0, 4}, at::kBFloat16);
  wide_weight_grad(none, of_none, target, true);
  EXPECT_TRUE(target.eq(1).all().item<bool>());
  wide_weight_grad(none, of_none, target, false);
  EXPECT_TRUE(target.eq(0).all().item<bool>());
}

TEST_P(HalfWidth, NarrowTargetsOfFp32) {
  const at::Tensor x = random({5, 6}, at::kFloat), grad = random({5, 7}, at::kFloat);
  const at::Tensor target = undefined_target({7, 6}, type());
  linear_weight_grad(grad, x, target, false);
  EXPECT_TRUE(at::equal(target, at::mm(grad.t(), x).to(type())));
}

TEST_P(HalfWidth, NormsKeepStatisticsInFp32) {
  const at::Tensor x = narrow({3, 4, 33}), w = narrow({33}), b = narrow({33}),
                   grad = narrow({3, 4, 33});
  const LayerNormResult own = layer_norm(x, w, b, 1e-5);
  const LayerNormResult full = layer_norm(wide(x), wide(w), wide(b), 1e-5);
  EXPECT_EQ(own.y.scalar_type(), type());
  EXPECT_EQ(own.mean.scalar_type(), at::kFloat);
  EXPECT_TRUE(close_to(own.mean, full.mean, 1e-5));
  EXPECT_TRUE(close_to(own.rstd, full.rstd, 1e-5));
  EXPECT_TRUE(close_to(own.y, full.y, rounding()));
  const LayerNormGrads grads =
      layer_norm_backward(grad, x, own.mean, own.rstd, w, b, true, true, true);
  const LayerNormGrads expected = layer_norm_backward(wide(grad), wide(x), full.mean, full.rstd,
                                                      wide(w), wide(b), true, true, true);
  EXPECT_TRUE(close_to(grads.x, expected.x, rounding()));
  EXPECT_TRUE(close_to(grads.weight, expected.weight, rounding()));
  EXPECT_TRUE(close_to(grads.bias, expected.bias, rounding()));

  const RmsNormResult rms = rms_norm(x, w, 1e-5);
  const RmsNormResult rms_full = rms_norm(wide(x), wide(w), 1e-5);
  EXPECT_EQ(rms.rrms.scalar_type(), at::kFloat);
  EXPECT_TRUE(close_to(rms.rrms, rms_full.rrms, 1e-6));
  EXPECT_TRUE(close_to(rms.y, rms_full.y, rounding()));
  EXPECT_TRUE(close_to(rms_norm_input_grad(grad, x, rms.rrms, w),
                       rms_norm_input_grad(wide(grad), wide(x), rms_full.rrms, wide(w)),
                       rounding()));
  const at::Tensor target = undefined_target({33}, at::kFloat);
  const at::Tensor expected_target = undefined_target({33}, at::kFloat);
  rms_norm_weight_grad(grad, x, rms.rrms, target, false);
  rms_norm_weight_grad(wide(grad), wide(x), rms_full.rrms, expected_target, false);
  EXPECT_TRUE(close_to(target, expected_target, 1e-5));
}

TEST_P(HalfWidth, BatchStatisticsAreFp32) {
  const at::Tensor x = narrow({6, 3, 4, 5}), w = narrow({3}), b = narrow({3});
  const auto run = [&](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
    const RunningStatistics running = {at::zeros({3}, at::kFloat), at::ones({3}, at::kFloat)};
    BatchNormResult result = batch_norm_training(input, weight, bias, running, 0.1, 1e-5);
    return std::tuple{result, running};
  };
  const auto [own, running] = run(x, w, b);
  const auto [full, full_running] = run(wide(x), wide(w), wide(b));
  EXPECT_EQ(running.mean.scalar_type(), at::kFloat);
  EXPECT_TRUE(close_to(running.mean, full_running.mean, 1e-5));
  EXPECT_TRUE(close_to(running.variance, full_running.variance, 1e-5));
  EXPECT_TRUE(close_to(own.y, full.y, rounding()));
  EXPECT_TRUE(close_to(batch_norm_evaluation(x, w, b, running, 1e-5),
                       batch_norm_evaluation(wide(x), wide(w), wide(b), full_running, 1e-5),
                       rounding()));
  const BatchNormNeeds all = {true, true, true};
  const at::Tensor grad = narrow({6, 3, 4, 5});
  const BatchNormGrads grads =
      batch_norm_training_backward(grad, x, w, own.mean, own.rstd, 1e-5, all);
  const BatchNormGrads expected =
      batch_norm_training_backward(wide(grad), wide(x), wide(w), full.mean, full.rstd, 1e-5, all);
  EXPECT_TRUE(close_to(grads.x, expected.x, rounding()));
  EXPECT_TRUE(close_to(grads.weight, expected.weight, 1e-4));
}

TEST_P(HalfWidth, CrossEntropyIsThatOfTheWidenedLogits) {
  const at::Tensor targets = random_indices(70'001, {3});
  const at::Tensor logits = narrow({3, 70'001}).mul(4);  // more classes than a block has
  const at::Tensor own = logits.clone(), full = wide(logits);
  const CrossEntropyResult result = cross_entropy(own, targets);
  const CrossEntropyResult expected = cross_entropy(full, targets);
  EXPECT_EQ(result.loss.scalar_type(), at::kFloat);
  EXPECT_TRUE(close_to(result.loss, expected.loss, 1e-6));
  EXPECT_TRUE(at::equal(own, logits));  // still needed
  const at::Tensor scale = at::full({}, 1024.0, at::kFloat);
  const at::Tensor grad = cross_entropy_backward(scale, own, targets, result.logsumexp);
  EXPECT_EQ(grad.data_ptr(), own.data_ptr());
  EXPECT_TRUE(
      close_to(grad, cross_entropy_backward(scale, full, targets, expected.logsumexp), rounding()));
}

TEST_P(HalfWidth, EmbeddingAddsUpWide) {
  // One row is used 300 times: a running sum in bf16 would stop at 256.
  const at::Tensor indices = at::zeros({300}, at::kLong);
  const at::Tensor grad = at::ones({300, 4}, type());
  for (at::ScalarType target_type : {type(), at::kFloat}) {
    const at::Tensor target = undefined_target({3, 4}, target_type);
    embedding_weight_grad(grad, indices, target, false);
    EXPECT_TRUE(target.select(0, 0).eq(300).all().item<bool>());
    EXPECT_TRUE(target.narrow(0, 1, 2).eq(0).all().item<bool>());
    embedding_weight_grad(grad.narrow(0, 0, 4), indices.narrow(0, 0, 4).add(2), target, true);
    EXPECT_TRUE(target.select(0, 2).eq(4).all().item<bool>());
  }
  EXPECT_TRUE(at::equal(ops::embedding(grad, indices), grad));
}

TEST_P(HalfWidth, AttentionRotaryAndGates) {
  const at::Tensor q = narrow({2, 12, 12}), k = narrow({2, 12, 4}), v = narrow({2, 12, 4});
  const GroupedAttentionResult own = grouped_attention(q, k, v, 3, 1);
  const GroupedAttentionResult full = grouped_attention(wide(q), wide(k), wide(v), 3, 1);
  EXPECT_EQ(own.out.scalar_type(), type());
  EXPECT_TRUE(close_to(own.out, full.out, rounding()));
  const at::Tensor table = rotary_table(12, 4, 10'000, at::kFloat);
  EXPECT_TRUE(close_to(rotary(q.clone(), table), rotary(wide(q).clone(), table), rounding()));
  EXPECT_TRUE(close_to(rotary_backward(q, table), rotary_backward(wide(q), table), rounding()));
  const SwigluGrads gates = swiglu_backward(k, v, k, true, true);
  const SwigluGrads expected = swiglu_backward(wide(k), wide(v), wide(k), true, true);
  EXPECT_TRUE(close_to(swiglu(k, v), swiglu(wide(k), wide(v)), rounding()));
  EXPECT_TRUE(close_to(gates.gate, expected.gate, rounding()));
  EXPECT_TRUE(close_to(gates.up, expected.up, rounding()));
}

TEST_P(HalfWidth, DropoutScalesWideAndDropsTheSame) {
  const at::Tensor x = narrow({4, 500});
  const ForwardContext context{3, 1, 0, true};
  const std::uint64_t id = dropout_op_id("layer");
  const at::Tensor expected = dropout(wide(x), 0.1, context, id).to(type());
  EXPECT_TRUE(at::equal(dropout(x, 0.1, context, id), expected));
}

TEST_P(HalfWidth, ConvolutionsAndPools) {
  const std::vector<std::int64_t> sizes = {2, 3, 6, 4, 6}, kernel = {4, 3, 3, 3, 3};
  for (std::size_t dims : {1, 2, 3}) {
    const auto cut = [&](const std::vector<std::int64_t>& all) {
      return std::vector<std::int64_t>(all.begin(),
                                       all.begin() + static_cast<std::ptrdiff_t>(2 + dims));
    };
    const ConvSteps steps{std::vector<std::int64_t>(dims, 1), std::vector<std::int64_t>(dims, 1)};
    const at::Tensor x = narrow(cut(sizes)), w = narrow(cut(kernel)), b = narrow({4});
    const at::Tensor y = conv(x, w, b, steps);
    EXPECT_TRUE(close_to(y, conv(wide(x), wide(w), wide(b), steps), rounding()));
    const at::Tensor target = undefined_target(w.sizes(), at::kFloat);
    const at::Tensor expected = undefined_target(w.sizes(), at::kFloat);
    conv_weight_grad(y, x, target, false, steps);
    conv_weight_grad(wide(y), wide(x), expected, false, steps);
    EXPECT_TRUE(close_to(target, expected, rounding()));
    const PoolWindow window = PoolWindow::tiles(std::vector<std::int64_t>(dims, 2));
    EXPECT_TRUE(at::equal(wide(max_pool(x, window).y), max_pool(wide(x), window).y));
    const at::Tensor mean = avg_pool(x, window);
    EXPECT_EQ(mean.scalar_type(), type());
    EXPECT_TRUE(close_to(mean, avg_pool(wide(x), window), rounding()));
    EXPECT_TRUE(close_to(avg_pool_backward(mean, x.sizes(), window),
                         avg_pool_backward(wide(mean), x.sizes(), window), rounding()));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, HalfWidth, ::testing::Values(DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace shardbench::ops
