// Gradients of a token table as rows, where ranks look up different numbers of them.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/modules/layers/embedding.h"
#include "tests/support/chain.h"

namespace shardbench::testing {
namespace {

constexpr std::int64_t kRows = 11;
constexpr std::int64_t kWidth = 5;

/// Token ids with repetitions; `count` of them.
at::Tensor tokens(std::int64_t count, int step, int micro, int rank) {
  return ((fixed({count}, step, micro, rank) + 1) * (kRows / 2.0))
      .to(at::kLong)
      .clamp(0, kRows - 1);
}

/// A table, then a layer; a rank's micro-batch has count(step, micro, rank) tokens, or none at all.
StrategyCase table_case(std::function<std::int64_t(int step, int micro, int rank)> count) {
  StrategyCase test = chain_case(
      [](Chain& chain) {
        chain.add<Embedding>("embed", kRows, kWidth, Init::normal(1), /*by_token=*/true);
        chain.add<Linear>("out", kWidth, 4);
      },
      kWidth);
  test.forward = [count = std::move(count)](Model& model, int step, int micro, int rank) {
    const std::int64_t all = count(step, micro, rank);
    if (all == 0) return std::vector<at::Tensor>{};
    return std::vector<at::Tensor>{model(tokens(all, step, micro, rank))};
  };
  test.options.sparse_embedding = true;
  return test;
}

void expect_bits_of_whole_gradients(StrategyCase test) {
  for (const char* units : {"whole", "tensor", "class:Linear"}) {
    test.units = units;
    for (const std::string& strategy : strategy_names()) {
      for (int world : {1, 2, 3}) EXPECT_EQ(run_case(test, strategy, world), "") << units;
    }
  }
}

TEST(SparseCases, RanksWithBatchesOfOtherSizes) {
  expect_bits_of_whole_gradients(
      table_case([](int step, int, int rank) { return 1 + 4 * rank + step; }));
}

TEST(SparseCases, MoreTokensThanRowsAndAccumulation) {
  StrategyCase test = table_case([](int, int micro, int rank) { return 30 - 9 * micro + rank; });
  test.accumulation = 3;
  test.max_norm = 0.1;
  expect_bits_of_whole_gradients(test);
}

TEST(SparseCases, ARankThatLooksUpNothing) {
  StrategyCase test = table_case([](int step, int, int rank) { return (step + rank) % 2 * 6; });
  test.units = "whole";
  for (const std::string& strategy : {std::string("ddp"), std::string("zero1")}) {
    EXPECT_EQ(run_case(test, strategy, 3), "");
  }
}

TEST(SparseCases, HalfWidthActivations) {
  StrategyCase test = table_case([](int, int, int) { return 9; });
  test.options.compute_dtype = DType::kBFloat16;
  expect_bits_of_whole_gradients(test);
}

TEST(SparseCases, RefusedByName) {
  StrategyCase test = table_case([](int, int, int) { return 4; });
  test.options.reduce_dtype = DType::kBFloat16;
  EXPECT_NE(run_case(test, "ddp", 2).find("--sparse-embedding: rows travel as fp32"),
            std::string::npos);
}

}  // namespace
}  // namespace shardbench::testing
