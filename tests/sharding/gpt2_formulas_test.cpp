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

TEST_F(Gpt2Formulas, UnshardedBoundIsRootAndTwoBlocks) {
  const std::int64_t block = 12 * 768 * 768 + 13 * 768;
  const std::int64_t root = 163'037'184 - 12 * block;
  EXPECT_EQ(unsharded_bound_bytes(input_, 1), (root + 2 * block) * 4);
}

}  // namespace
}  // namespace shardbench::sharding
