#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/ops/attention.h"
#include "tests/support/numeric.h"
#include "tests/support/reference_llama.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::int64_t batch, length, heads, kv_heads, size;
};

class GroupedAttentionOp : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    at::manual_seed(17);
    const Sizes s = GetParam();
    q_ = random({s.batch, s.length, s.heads * s.size});
    k_ = random({s.batch, s.length, s.kv_heads * s.size});
    v_ = random({s.batch, s.length, s.kv_heads * s.size});
    grad_ = random(q_.sizes());
  }
  at::Tensor q_, k_, v_, grad_;
};

TEST_P(GroupedAttentionOp, ValuesAndGradientsEqualAutograd) {
  const Sizes s = GetParam();
  const at::Tensor q = q_.clone().requires_grad_(true), k = k_.clone().requires_grad_(true),
                   v = v_.clone().requires_grad_(true);
  const auto by_head = [&](const at::Tensor& x, std::int64_t heads) {
    return x.view({s.batch, s.length, heads, s.size}).transpose(1, 2);
  };
  const at::Tensor expected =
      grouped_attention_of(by_head(q, s.heads), by_head(k, s.kv_heads), by_head(v, s.kv_heads))
          .transpose(1, 2)
          .reshape(q.sizes());
  expected.backward(grad_);
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 3e-6}}) {
    const at::Tensor a = q_.to(type), b = k_.to(type), c = v_.to(type);
    const GroupedAttentionResult forward = grouped_attention(a, b, c, s.heads, s.kv_heads);
    EXPECT_TRUE(close_to(forward.out, expected, tolerance));
    EXPECT_TRUE(forward.out.is_contiguous());
    std::int64_t kept = 0;
    for (const at::Tensor& part : forward.logsumexp) kept += part.numel();
    EXPECT_EQ(kept, s.batch * s.length * s.heads);
    const AttentionGrads grads =
        grouped_attention_backward(grad_.to(type), a, b, c, forward, s.heads, s.kv_heads);
    EXPECT_TRUE(close_to(grads.q, q.grad(), tolerance));
    EXPECT_TRUE(close_to(grads.v, v.grad(), tolerance));
    if (s.length == 1) {  // one key: its weight is 1, whatever the score
      EXPECT_LT(grads.k.abs().max().item<double>(), tolerance);
    } else {
      EXPECT_TRUE(close_to(grads.k, k.grad(), tolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupedAttentionOp,
                         ::testing::Values(Sizes{2, 5, 4, 2, 6}, Sizes{3, 7, 6, 2, 4},
                                           Sizes{2, 6, 3, 1, 4}, Sizes{2, 5, 3, 3, 4},
                                           Sizes{1, 9, 1, 1, 2}, Sizes{2, 8, 9, 3, 1},
                                           Sizes{1, 300, 4, 2, 8}));

class GroupedAttentionOneToken : public GroupedAttentionOp {};

TEST_P(GroupedAttentionOneToken, IsItsValue) {
  const Sizes s = GetParam();
  const GroupedAttentionResult forward = grouped_attention(q_, k_, v_, s.heads, s.kv_heads);
  const at::Tensor values = v_.view({s.batch, 1, s.kv_heads, s.size});
  const at::Tensor expected = values.repeat_interleave(s.heads / s.kv_heads, 2).reshape(q_.sizes());
  EXPECT_TRUE(close_to(forward.out, expected, 1e-14));
  const AttentionGrads grads =
      grouped_attention_backward(grad_, q_, k_, v_, forward, s.heads, s.kv_heads);
  EXPECT_LT(grads.q.abs().max().item<double>(), 1e-12);
  EXPECT_LT(grads.k.abs().max().item<double>(), 1e-12);
  const at::Tensor summed =
      grad_.view({s.batch, 1, s.kv_heads, s.heads / s.kv_heads, s.size}).sum(3);
  EXPECT_TRUE(close_to(grads.v, summed.reshape(v_.sizes()), 1e-14));
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupedAttentionOneToken,
                         ::testing::Values(Sizes{2, 1, 4, 2, 6}, Sizes{1, 1, 5, 1, 2},
                                           Sizes{3, 1, 2, 2, 4}));

TEST(GroupedAttentionOpCases, OneQueryPerKeyIsPlainAttentionBitForBit) {
  at::manual_seed(5);
  const at::Tensor qkv = random({2, 11, 3 * 12}, at::kFloat);
  const auto parts = qkv.split(12, 2);
  const at::Tensor q = parts[0].contiguous(), k = parts[1].contiguous(), v = parts[2].contiguous();
  EXPECT_TRUE(grouped_attention(q, k, v, 3, 3).out.equal(causal_attention(qkv, 3).out));
}

TEST(GroupedAttentionOpCases, AnEmptyBatchGivesEmptyResults) {
  const at::Tensor q = random({0, 4, 12}), k = random({0, 4, 6});
  const GroupedAttentionResult forward = grouped_attention(q, k, k, 4, 2);
  EXPECT_EQ(forward.out.sizes(), q.sizes());
  const AttentionGrads grads = grouped_attention_backward(q, q, k, k, forward, 4, 2);
  EXPECT_EQ(grads.q.sizes(), q.sizes());
  EXPECT_EQ(grads.k.sizes(), k.sizes());
}

TEST(GroupedAttentionOpCases, RefusesWhatDoesNotFit) {
  const at::Tensor q = random({1, 2, 12});
  EXPECT_THROW(grouped_attention(q, random({1, 2, 9}), random({1, 2, 9}), 4, 3), InvariantError);
  EXPECT_THROW(grouped_attention(q, random({1, 2, 6}), random({1, 2, 3}), 4, 2), InvariantError);
  EXPECT_THROW(grouped_attention(q, random({1, 3, 6}), random({1, 3, 6}), 4, 2), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
