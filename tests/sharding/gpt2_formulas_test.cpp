// Known figures of GPT-2 124M with an untied head on two ranks.
#include <gtest/gtest.h>

#include "common/sharding/flat.h"
#include "common/sharding/formulas.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

class Gpt2Formulas : public testing::Test {
 protected:
  Gpt2Formulas() : model_(gpt_shape(12, 768, 50257, 1024, false)) {
    input_.model = &model_;
    input_.world_size = 2;
  }
  const ModelShape model_;
  FormulaInput input_;
};

TEST_F(Gpt2Formulas, ParameterCounts) {
  EXPECT_EQ(model_.parameter_count(), 163'037'184);
  EXPECT_EQ(gpt_shape(12, 768, 50257, 1024, true).parameter_count(), 124'439'808);
}

TEST_F(Gpt2Formulas, PersistentMemory) {
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(formula_memory(FormulaKind::kDdp, input_, rank).persistent(), 2'608'594'944);
  }
  EXPECT_EQ(formula_memory(FormulaKind::kFsdp, input_, 0).persistent(), 1'304'309'760);
  EXPECT_EQ(formula_memory(FormulaKind::kFsdp, input_, 1).persistent(), 1'304'285'184);
  EXPECT_EQ(formula_memory(FormulaKind::kZero3, input_, 0).persistent() +
                formula_memory(FormulaKind::kZero3, input_, 1).persistent(),
            2'608'594'944);
}

TEST_F(Gpt2Formulas, MeanTrafficIsTwoAndThreeTimesTheFraction) {
  const double fraction = 0.5;  // (W - 1) / W
  const auto mean_sent = [&](FormulaKind kind) {
    std::int64_t sent = 0;
    for (int rank = 0; rank < 2; ++rank) {
      for (const FormulaTraffic& entry : formula_traffic(kind, input_, rank)) {
        sent += entry.algo_bytes;
      }
    }
    return static_cast<double>(sent) / 2 / (4.0 * 163'037'184 * fraction);
  };
  EXPECT_EQ(mean_sent(FormulaKind::kDdp), 2.0);  // all sizes are multiples of 64 bytes
  EXPECT_EQ(mean_sent(FormulaKind::kZero3), 3.0);
  EXPECT_EQ(mean_sent(FormulaKind::kFsdp), 3.0);
  input_.reshard_after_forward = FormulaInput::Reshard::kFalse;
  EXPECT_EQ(mean_sent(FormulaKind::kFsdp), 2.0);
}

// torchtitan's recipe, bf16 weights and fp32 gradients on the wire: full sharding sends what ddp
// sends; with gradients in bf16, too, three quarters of it.
TEST_F(Gpt2Formulas, BytesFollowTheDtypesOfMessages) {
  const auto mean_sent = [&](FormulaKind kind) {
    std::int64_t sent = 0;
    for (int rank = 0; rank < 2; ++rank) {
      for (const FormulaTraffic& entry : formula_traffic(kind, input_, rank)) {
        sent += entry.algo_bytes;
      }
    }
    return static_cast<double>(sent) / 2 / (163'037'184 * 0.5);  // bytes per parameter over f
  };
  input_.compute_dtype = DType::kBFloat16;
  EXPECT_EQ(mean_sent(FormulaKind::kDdp), 8.0);
  EXPECT_EQ(mean_sent(FormulaKind::kZero1), 6.0);  // gradients at 4 bytes, weights at 2
  EXPECT_EQ(mean_sent(FormulaKind::kZero2), 6.0);
  EXPECT_EQ(mean_sent(FormulaKind::kZero3), 8.0);
  EXPECT_EQ(mean_sent(FormulaKind::kFsdp), 8.0);
  input_.reduce_dtype = DType::kBFloat16;
  EXPECT_EQ(mean_sent(FormulaKind::kDdp), 4.0);
  EXPECT_EQ(mean_sent(FormulaKind::kFsdp), 6.0);
}

TEST_F(Gpt2Formulas, MastersAndWholeCopies) {
  const std::int64_t p = 163'037'184;
  input_.compute_dtype = DType::kFloat16;
  const auto both_ranks = [&](FormulaKind kind) {
    return formula_memory(kind, input_, 0).persistent() +
           formula_memory(kind, input_, 1).persistent();
  };
  EXPECT_EQ(both_ranks(FormulaKind::kDdp), 2 * p * (2 + 4 + 4 + 8));
  EXPECT_EQ(both_ranks(FormulaKind::kZero1), 2 * p * (2 + 4) + p * (4 + 8));
  EXPECT_EQ(both_ranks(FormulaKind::kZero2), 2 * p * 2 + p * (4 + 4 + 8));
  EXPECT_EQ(both_ranks(FormulaKind::kZero3), p * 16);
  EXPECT_EQ(both_ranks(FormulaKind::kFsdp), p * 16);
  const std::int64_t block = 12 * 768 * 768 + 13 * 768;
  EXPECT_EQ(unsharded_bound_bytes(input_, 1), (p - 12 * block + 2 * block) * 2);
}

TEST_F(Gpt2Formulas, NoGradientIsKeptWithTheOptimizerInBackward) {
  const std::int64_t p = 163'037'184;
  input_.optimizer_in_backward = true;
  const auto both_ranks = [&](FormulaKind kind) {
    return formula_memory(kind, input_, 0).persistent() +
           formula_memory(kind, input_, 1).persistent();
  };
  EXPECT_EQ(both_ranks(FormulaKind::kZero2), 2 * p * 4 + p * 8);
  EXPECT_EQ(both_ranks(FormulaKind::kZero3), p * 12);
  EXPECT_EQ(both_ranks(FormulaKind::kFsdp), p * 12);
  EXPECT_EQ(formula_memory(FormulaKind::kFsdp, input_, 0).grad, 0);
}

TEST_F(Gpt2Formulas, UnshardedBoundIsRootAndTwoBlocks) {
  const std::int64_t block = 12 * 768 * 768 + 13 * 768;
  const std::int64_t root = 163'037'184 - 12 * block;
  EXPECT_EQ(unsharded_bound_bytes(input_, 1), (root + 2 * block) * 4);
}

}  // namespace
}  // namespace shardbench::sharding
