#include <gtest/gtest.h>

#include "common/sharding/formulas.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

/// A table of tokens of 10 x 8 and a matrix of 3 x 8.
ModelShape table_and_matrix() {
  ShapeBuilder build("two");
  build.parameter(build.module("embed", "Embedding"), "weight", {10, 8});
  build.parameter(build.module("head", "Linear"), "weight", {3, 8});
  ModelShape model = build.model();
  model.parameters[0].by_token = true;
  return model;
}

// By hand: a table of 10 x 8 and a matrix of 3 x 8, two ranks, 6 tokens each, fp32.
TEST(SparseEmbedding, RowsTravelInPlaceOfTheTable) {
  ModelShape model = table_and_matrix();
  FormulaInput input;
  input.model = &model;
  input.units = UnitPolicy::parse("whole");
  input.world_size = 2;
  input.sparse_embedding = true;
  input.tokens = 6;
  const std::int64_t message = 6 * (8 + 4 * 8);  // an id and a row for every token
  const auto backward = [&](FormulaKind kind, int rank, comm::CollectiveKind call) {
    for (const FormulaTraffic& entry : formula_traffic(kind, input, rank)) {
      if (entry.phase == Phase::kBackward && entry.kind == call) return entry;
    }
    return FormulaTraffic{};
  };
  using comm::CollectiveKind;
  for (const FormulaKind kind : {FormulaKind::kDdp, FormulaKind::kZero1, FormulaKind::kZero2}) {
    const FormulaTraffic rows = backward(kind, 1, CollectiveKind::kAllGather);
    EXPECT_EQ(rows.calls, 1);
    EXPECT_EQ(rows.payload_bytes, 2 * message);
    EXPECT_EQ(rows.algo_bytes, message);
  }
  EXPECT_EQ(backward(FormulaKind::kDdp, 0, CollectiveKind::kAllReduce).payload_bytes, 32 * 4);
  // zero owners: the table at rank 0, the matrix at rank 1.
  EXPECT_EQ(backward(FormulaKind::kZero3, 0, CollectiveKind::kReduce).algo_bytes, 24 * 4);
  EXPECT_EQ(backward(FormulaKind::kZero3, 1, CollectiveKind::kReduce).algo_bytes, 0);
  // fsdp gathers weights a second time (10 x 8 and 3 x 8, rank 0 keeps 5 and 2 rows), then rows.
  const FormulaTraffic fsdp = backward(FormulaKind::kFsdp, 0, CollectiveKind::kAllGather);
  EXPECT_EQ(fsdp.calls, 2);
  EXPECT_EQ(fsdp.algo_bytes, 7 * 8 * 4 + message);
  EXPECT_EQ(backward(FormulaKind::kFsdp, 0, CollectiveKind::kReduceScatter).algo_bytes, 8 * 4);

  // A step of three micro-batches: once per step, but never more rows than there are; or every
  // time.
  input.accumulation = 3;
  EXPECT_EQ(backward(FormulaKind::kDdp, 0, CollectiveKind::kAllGather).algo_bytes, 10 * 40);
  EXPECT_EQ(backward(FormulaKind::kZero2, 0, CollectiveKind::kAllGather).algo_bytes, 3 * message);
  // Used elsewhere, too, its gradient has every row.
  model.parameters[0].also_used_by.push_back(2);
  EXPECT_EQ(backward(FormulaKind::kDdp, 0, CollectiveKind::kAllGather).calls, 0);
  EXPECT_EQ(backward(FormulaKind::kDdp, 0, CollectiveKind::kAllReduce).payload_bytes, 112 * 4);
}

// The same model, each tensor a unit: the table's backward reads none of its values.
TEST(SparseEmbedding, ATableAloneIsNotGatheredForBackward) {
  ModelShape model = table_and_matrix();
  FormulaInput input;
  input.model = &model;
  input.units = UnitPolicy::parse("tensor");
  input.world_size = 2;
  const auto gathered = [&](FormulaKind kind, Phase phase) {
    std::int64_t bytes = 0;
    for (const FormulaTraffic& entry : formula_traffic(kind, input, 0)) {
      const bool gathers = entry.kind == comm::CollectiveKind::kAllGather ||
                           entry.kind == comm::CollectiveKind::kBroadcast;
      if (entry.phase == phase && gathers) bytes += entry.payload_bytes;
    }
    return bytes;
  };
  for (const FormulaKind kind : {FormulaKind::kZero3, FormulaKind::kFsdp}) {
    EXPECT_EQ(gathered(kind, Phase::kForward), (10 + 3) * 8 * 4);
    EXPECT_EQ(gathered(kind, Phase::kBackward), 3 * 8 * 4);
  }
  // Used elsewhere, too, its values are read.
  model.parameters[0].also_used_by.push_back(2);
  EXPECT_EQ(gathered(FormulaKind::kFsdp, Phase::kBackward), (10 + 3) * 8 * 4);
}

}  // namespace
}  // namespace shardbench::sharding
