#include "common/ops/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

struct Sizes {
  std::int64_t batch, length, heads, size;
  std::int64_t width() const { return heads * size; }
};

/// Token by token, from the definition.
at::Tensor by_definition(const at::Tensor& qkv, const Sizes& s) {
  at::Tensor out = at::zeros({s.batch, s.length, s.width()}, qkv.options());
  const double scale = 1 / std::sqrt(static_cast<double>(s.size));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const at::Tensor q = qkv[b].narrow(1, h * s.size, s.size);
      const at::Tensor k = qkv[b].narrow(1, s.width() + h * s.size, s.size);
      const at::Tensor v = qkv[b].narrow(1, 2 * s.width() + h * s.size, s.size);
      for (std::int64_t t = 0; t < s.length; ++t) {
        const at::Tensor seen = k.narrow(0, 0, t + 1);
        const at::Tensor weights = at::softmax(at::mv(seen, q[t]) * scale, 0);
        out[b][t].narrow(0, h * s.size, s.size).copy_(at::mv(v.narrow(0, 0, t + 1).t(), weights));
      }
    }
  }
  return out;
}

class AttentionOp : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override { at::manual_seed(11); }
};

TEST_P(AttentionOp, BothKindsFollowTheDefinition) {
  const Sizes s = GetParam();
  const at::Tensor qkv = random({s.batch, s.length, 3 * s.width()});
  const at::Tensor expected = by_definition(qkv, s);
  EXPECT_TRUE(close_to(causal_attention(qkv, s.heads).out, expected, 1e-12));
  EXPECT_TRUE(close_to(causal_attention_plain(qkv, s.heads).out, expected, 1e-12));
  const at::Tensor single = qkv.to(at::kFloat);
  EXPECT_TRUE(close_to(causal_attention(single, s.heads).out, expected, 2e-6));
  EXPECT_TRUE(causal_attention(single, s.heads).out.is_contiguous());
}

TEST_P(AttentionOp, BothBackwardsMatchFiniteDifferences) {
  const Sizes s = GetParam();
  const at::Tensor qkv = random({s.batch, s.length, 3 * s.width()});
  const at::Tensor grad = random({s.batch, s.length, s.width()});
  const auto f = [&](const at::Tensor& p) {
    return weighted_sum(causal_attention(p, s.heads).out, grad);
  };
  const at::Tensor expected = numeric_gradient(f, qkv);
  EXPECT_TRUE(
      close_to(causal_attention_backward(grad, qkv, causal_attention(qkv, s.heads), s.heads),
               expected, 1e-7));
  EXPECT_TRUE(close_to(
      causal_attention_plain_backward(grad, qkv, causal_attention_plain(qkv, s.heads), s.heads),
      expected, 1e-7));
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionOp,
                         ::testing::Values(Sizes{2, 5, 3, 4}, Sizes{1, 1, 1, 1}, Sizes{3, 1, 2, 5},
                                           Sizes{1, 7, 1, 3}, Sizes{1, 9, 5, 1}));

TEST(AttentionOpLong, SeveralBlocksAgreeWithPlainProducts) {
  at::manual_seed(1);
  for (const std::int64_t length : {63, 64, 65, 128, 300}) {
    SCOPED_TRACE(length);
    const at::Tensor qkv = random({2, length, 3 * 2 * 8}), grad = random({2, length, 2 * 8});
    const AttentionResult own = causal_attention(qkv, 2), plain = causal_attention_plain(qkv, 2);
    EXPECT_TRUE(close_to(own.out, plain.out, 1e-12));
    EXPECT_TRUE(close_to(own.logsumexp, plain.logsumexp, 1e-12));
    const at::Tensor expected = causal_attention_plain_backward(grad, qkv, plain, 2);
    EXPECT_TRUE(close_to(causal_attention_backward(grad, qkv, own, 2), expected, 1e-11));
    const at::Tensor single = qkv.to(at::kFloat);
    const AttentionResult of_single = causal_attention(single, 2);
    EXPECT_TRUE(close_to(causal_attention_backward(grad.to(at::kFloat), single, of_single, 2),
                         expected, 2e-6));
  }
}

TEST(AttentionOpLong, HugeScoresStayFinite) {
  const at::Tensor qkv = at::full({1, 3, 3}, 300.0, at::kFloat);
  const AttentionResult result = causal_attention(qkv, 1);
  EXPECT_TRUE(close_to(result.out, at::full({1, 3, 1}, 300.0), 1e-6));
  EXPECT_TRUE(
      causal_attention_backward(at::ones({1, 3, 1}), qkv, result, 1).isfinite().all().item<bool>());
}

TEST(AttentionOpLong, EmptyBatchGivesEmptyResults) {
  const at::Tensor qkv = random({0, 4, 12});
  const AttentionResult result = causal_attention(qkv, 2);
  EXPECT_EQ(result.out.sizes(), at::IntArrayRef({0, 4, 4}));
  EXPECT_EQ(causal_attention_backward(random({0, 4, 4}), qkv, result, 2).sizes(), qkv.sizes());
}

TEST(AttentionOpLong, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_THROW(causal_attention(random({1, 2, 12}), 3), InvariantError);
}

}  // namespace
}  // namespace shardbench::ops
