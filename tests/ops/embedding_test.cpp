#include "common/ops/embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

TEST(EmbeddingOp, LooksRowsUp) {
  const at::Tensor w = random({4, 3});
  const at::Tensor indices = at::tensor({3, 0, 3, 1}, at::kLong).view({2, 2});
  const at::Tensor y = ops::embedding(w, indices);
  ASSERT_EQ(y.sizes(), at::IntArrayRef({2, 2, 3}));
  EXPECT_TRUE(y[0][0].equal(w[3]));
  EXPECT_TRUE(y[0][1].equal(w[0]));
  EXPECT_TRUE(y[1][0].equal(w[3]));
  EXPECT_TRUE(y[1][1].equal(w[1]));
}

TEST(EmbeddingOp, GradientMatchesFiniteDifferences) {
  at::manual_seed(3);
  const at::Tensor w = random({7, 5});
  const at::Tensor indices = random_indices(5, {2, 6});  // rows 5 and 6 are never used
  const at::Tensor grad = random({2, 6, 5});
  const at::Tensor dw = undefined_target({7, 5});
  embedding_weight_grad(grad, indices, dw, false);
  const auto f = [&](const at::Tensor& p) {
    return weighted_sum(ops::embedding(p, indices), grad);
  };
  EXPECT_TRUE(close_to(dw, numeric_gradient(f, w), 1e-7));
  EXPECT_TRUE(dw.narrow(0, 5, 2).eq(0).all().item<bool>());
}

TEST(EmbeddingOp, AddsRepeatedRowsInTokenOrder) {
  // In fp32 the order shows: (2^24 + 1) + 1 = 2^24, but 2^24 + (1 + 1) is not.
  const at::Tensor indices = at::zeros({3}, at::kLong);
  const float big = 16777216.0f;
  const at::Tensor grad = at::tensor({big, 1.0f, 1.0f}).view({3, 1});
  const at::Tensor dw = undefined_target({1, 1}, at::kFloat);
  embedding_weight_grad(grad, indices, dw, false);
  EXPECT_EQ(dw.item<float>(), big);
  embedding_weight_grad(grad.flip(0), indices, dw, false);
  EXPECT_EQ(dw.item<float>(), big + 2);
}

TEST(EmbeddingOp, AccumulatesIntoWhatIsThere) {
  const at::Tensor indices = random_indices(4, {5});
  const at::Tensor grad = random({5, 3});
  const at::Tensor before = random({4, 3});
  const at::Tensor once = undefined_target({4, 3});
  embedding_weight_grad(grad, indices, once, false);
  const at::Tensor sum = before.clone();
  embedding_weight_grad(grad, indices, sum, true);
  EXPECT_TRUE(close_to(sum, before + once, 1e-14));
}

TEST(EmbeddingOp, NamesAnIndexOutOfRange) {
  const at::Tensor w = random({4, 3});
  for (std::int64_t bad : {std::int64_t{4}, std::int64_t{-1}}) {
    try {
      ops::embedding(w, at::tensor({std::int64_t{0}, bad}, at::kLong));
      FAIL() << "index " << bad << " was accepted";
    } catch (const InvariantError& e) {
      EXPECT_NE(std::string(e.what()).find(fmt::format("index {} at position 1", bad)),
                std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace shardbench::ops
