#include "common/ops/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

at::Tensor mask(double p, const ForwardContext& context, std::uint64_t op,
                at::IntArrayRef sizes = {4, 3, 101}) {
  return ops::dropout(at::ones(sizes, at::kDouble), p, context, op);
}

TEST(DropoutOp, KeepsTheRightShareAndScale) {
  const ForwardContext context{.seed = 1, .step = 2, .first_sample = 3};
  for (double p : {0.1, 0.5, 0.9}) {
    const at::Tensor m = mask(p, context, 5, {8, 1000, 25});
    const at::Tensor kept = m.ne(0);
    EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 1 - p, 0.005);
    EXPECT_TRUE(m.masked_select(kept).eq(1 / (1 - p)).all().item<bool>());
    EXPECT_NEAR(m.mean().item<double>(), 1, 0.05);
  }
  EXPECT_TRUE(mask(0, context, 5).eq(1).all().item<bool>());
}

TEST(DropoutOp, GradientIsTheSameMask) {
  const ForwardContext context{.seed = 9, .step = 1, .first_sample = 0};
  const at::Tensor x = random({2, 3, 7}), grad = random({2, 3, 7});
  const auto f = [&](const at::Tensor& p) {
    return weighted_sum(ops::dropout(p, 0.4, context, 1), grad);
  };
  EXPECT_TRUE(close_to(ops::dropout(grad, 0.4, context, 1), numeric_gradient(f, x), 1e-8));
}

TEST(DropoutOp, MasksFollowTheGlobalSampleAlone) {
  // One batch of four samples, or two ranks with two each, or four with one: the same masks.
  const ForwardContext whole{.seed = 1, .step = 7, .first_sample = 8};
  const at::Tensor all = mask(0.5, whole, 3, {4, 5, 7});
  for (std::int64_t part : {1, 2}) {
    for (std::int64_t first = 0; first < 4; first += part) {
      const ForwardContext own{.seed = 1, .step = 7, .first_sample = 8 + first};
      EXPECT_TRUE(mask(0.5, own, 3, {part, 5, 7}).equal(all.narrow(0, first, part)));
    }
  }
  // The dtype does not matter either.
  EXPECT_TRUE(ops::dropout(at::ones({4, 5, 7}), 0.5, whole, 3).to(at::kDouble).equal(all));
}

TEST(DropoutOp, EverythingElseChangesTheMask) {
  const ForwardContext base{.seed = 1, .step = 2, .first_sample = 3};
  const at::Tensor m = mask(0.5, base, 4);
  EXPECT_TRUE(mask(0.5, base, 4).equal(m));
  const auto share_equal = [&](const at::Tensor& other) {
    return other.eq(m).to(at::kDouble).mean().item<double>();
  };
  // Independent masks agree in half of 1212 elements, within five standard deviations.
  EXPECT_NEAR(share_equal(mask(0.5, {.seed = 2, .step = 2, .first_sample = 3}, 4)), 0.5, 0.072);
  EXPECT_NEAR(share_equal(mask(0.5, {.seed = 1, .step = 3, .first_sample = 3}, 4)), 0.5, 0.072);
  EXPECT_NEAR(share_equal(mask(0.5, {.seed = 1, .step = 2, .first_sample = 4}, 4)), 0.5, 0.072);
  EXPECT_NEAR(share_equal(mask(0.5, base, 5)), 0.5, 0.072);
  EXPECT_FALSE(m[0].equal(m[1]));
}

TEST(DropoutOp, ContextsBelongToThreads) {
  forward_context() = {.seed = 5, .step = 1, .first_sample = 0};
  std::thread([] {
    EXPECT_EQ(forward_context().seed, 0u);
    forward_context().seed = 6;
  }).join();
  EXPECT_EQ(forward_context().seed, 5u);
  forward_context() = {};
}

TEST(DropoutOp, PathsGiveDifferentIds) {
  EXPECT_EQ(dropout_op_id("h.0.attn.dropout"), dropout_op_id("h.0.attn.dropout"));
  EXPECT_NE(dropout_op_id("h.0.attn.dropout"), dropout_op_id("h.1.attn.dropout"));
  EXPECT_NE(dropout_op_id("h.0.attn.dropout"), dropout_op_id("h.0.mlp.dropout"));
}

TEST(DropoutOp, RefusesBadProbabilitiesAndTakesEmptyBatches) {
  EXPECT_THROW(mask(1.0, {}, 0), InvariantError);
  EXPECT_THROW(mask(-0.1, {}, 0), InvariantError);
  EXPECT_EQ(mask(0.5, {}, 0, {0, 3}).numel(), 0);
}

}  // namespace
}  // namespace shardbench::ops
