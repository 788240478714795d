// Strategies with one mistake each: the parity gate must catch every one and name a tensor. They
// also show what a fourth strategy takes: a class that overrides what differs, and one line.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/compare/compare.h"
#include "bench/compare/screens.h"
#include "common/models/config.h"
#include "common/train/runner.h"
#include "ddp/strategy.h"
#include "fsdp/strategy.h"
#include "zero3/strategy.h"

namespace shardbench::testing {
namespace {

/// The sum over ranks where the mean belongs.
class SumForMean : public fsdp::Fsdp {
 protected:
  std::vector<comm::Work> reduce(train::UnitGradients& unit, comm::ConstBuffer full,
                                 comm::Buffer shard, bool accumulate) override {
    std::vector<comm::Work> works;
    works.push_back(comm().reduce_scatter(unit.layout, full, shard, comm::ReduceOp::kSum,
                                          accumulate, tag(unit.unit->name)));
    return works;
  }
};

/// AdamW whose counter starts at 2: the first update is lr sqrt(1+b2)/(1+b1) instead of lr.
class SecondStepFirst : public fsdp::Fsdp {
 protected:
  void values_changed() override {
    constexpr float kLr = 1e-3f, kBeta1 = 0.9f, kBeta2 = 0.95f;
    const float factor = std::sqrt(1 + kBeta2) / (1 + kBeta1);
    if (steps_++ == 0) {
      for (const OwnedPiece& piece : owned().pieces) {
        for (std::int64_t i = 0; i < piece.count; ++i) {
          const float g = piece.gradient[i];
          if (g != 0) piece.value[i] += kLr * (1 - factor) * (g > 0 ? 1.0f : -1.0f);
        }
      }
    }
    Fsdp::values_changed();
  }

 private:
  int steps_ = 0;
};

/// One bucket never leaves.
class DroppedBucket : public ddp::Ddp {
 protected:
  std::vector<comm::Work> reduce_bucket(int index) override {
    if (index == 1) return {};
    return Ddp::reduce_bucket(index);
  }
};

/// Rows of the embedding's gradient are added up from the last token on.
class RowsBackwards : public fsdp::Fsdp {
 protected:
  void add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad) override {
    const at::Tensor flat = indices.reshape({-1});
    Fsdp::add_rows(parameter, flat.flip(0), grad.reshape({flat.numel(), -1}).flip(0));
  }
};

/// Keeps what an evaluation has gathered, whatever the optimizer does to the shards.
class StaleAfterEvaluation : public fsdp::Fsdp {
 public:
  void after_forward(Unit& unit) override {
    if (!at::GradMode::is_enabled()) evaluated_ = true;
    if (!evaluated_) Fsdp::after_forward(unit);
  }
  void after_backward(Unit& unit) override {
    if (evaluated_) {
      gradients().reduce_if_complete(unit, /*also_unwritten=*/true);
    } else {
      Fsdp::after_backward(unit);
    }
  }
  void end_of_backward() override {
    if (!evaluated_) Fsdp::end_of_backward();
  }

 protected:
  void reduce_the_rest() override {
    if (!evaluated_) return Fsdp::reduce_the_rest();
    gradients().finish();
  }
  void values_changed() override {
    if (!evaluated_) Fsdp::values_changed();
  }

 private:
  bool evaluated_ = false;
};

/// Rank 0's rows land where rank 1's belong.
class SwappedRows : public fsdp::Fsdp {
 protected:
  std::vector<comm::Work> gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                 comm::Buffer full) override {
    std::vector<std::vector<sharding::Segment>> swapped = {unit.values.segments(0),
                                                           unit.values.segments(1)};
    for (std::size_t i = 0; i < swapped[0].size() && i < swapped[1].size(); ++i) {
      if (swapped[0][i].count != swapped[1][i].count) continue;
      std::swap(swapped[0][i].full_offset, swapped[1][i].full_offset);
    }
    std::vector<comm::Work> works;
    works.push_back(
        comm().all_gather(sharding::ShardLayout(swapped), shard, full, tag(unit.unit->name)));
    return works;
  }
};

train::Registry registry_with_faults() {
  train::Registry registry;
  ddp::register_strategy(registry);
  zero3::register_strategy(registry);
  fsdp::register_strategy(registry);
  const auto add = [&](const char* name, sharding::FormulaKind formula, auto make) {
    registry.add({name, "test only", train::AccumulationOrder::kRanksFirst, formula, make});
  };
  using sharding::FormulaKind;
  add("sum_for_mean", FormulaKind::kFsdp, [] { return std::make_unique<SumForMean>(); });
  add("second_step_first", FormulaKind::kFsdp, [] { return std::make_unique<SecondStepFirst>(); });
  add("dropped_bucket", FormulaKind::kDdp, [] { return std::make_unique<DroppedBucket>(); });
  add("stale", FormulaKind::kFsdp, [] { return std::make_unique<StaleAfterEvaluation>(); });
  add("rows_backwards", FormulaKind::kFsdp, [] { return std::make_unique<RowsBackwards>(); });
  add("swapped_rows", FormulaKind::kFsdp, [] { return std::make_unique<SwappedRows>(); });
  return registry;
}

bench::Request request_for(std::vector<std::string> strategies) {
  bench::Request request;
  request.base.model = models::preset("gpt2-nano");
  request.base.model.layers = 2;
  request.base.model.heads = 2;
  request.base.model.hidden = 32;
  request.base.seq = 16;
  request.base.batch = 2;
  request.base.warmup = 1;
  request.base.steps = 3;
  request.base.data = "synthetic";
  request.base.timeout_s = 60;
  request.base.options.first_bucket_mib = 0.01;  // several buckets, so that one can be lost
  request.base.options.bucket_cap_mib = 0.02;
  request.strategies = std::move(strategies);
  request.worlds = {2};
  return request;
}

bench::Comparison compare(const bench::Request& request) {
  const train::Registry registry = registry_with_faults();
  bench::Engine engine;
  engine.run = [&](const train::RunConfig& config, const train::Progress& progress,
                   const train::RankObserver&) {
    return train::run_strategy(*comm::forked_ranks(), config, registry, progress);
  };
  engine.reference = [](const train::RunConfig& config, train::AccumulationOrder order,
                        const train::Progress& progress) {
    return train::run_reference(*comm::forked_ranks(), config, order, progress);
  };
  engine.judge = train::judge;
  return bench::compare(request, registry, engine);
}

class PlantedFault : public ::testing::TestWithParam<const char*> {};

TEST_P(PlantedFault, IsShownAsWrongWithATensor) {
  const bench::Comparison comparison = compare(request_for({"ddp", GetParam()}));
  ASSERT_EQ(comparison.blocks.size(), 1u);
  const std::vector<bench::Row>& rows = comparison.blocks[0].rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].right()) << rows[0].reason;
  const bench::Row& wrong = rows[1];
  EXPECT_EQ(wrong.state, bench::Row::State::kWrong) << wrong.reason;
  const std::string& tensor = wrong.parity.first_tensor;
  const sharding::ModelShape shape = models::shape_of(comparison.request.base.model);
  const bool known = std::any_of(shape.parameters.begin(), shape.parameters.end(),
                                 [&](const auto& p) { return p.name == tensor; });
  EXPECT_TRUE(known) << "named '" << tensor << "'";
  const std::string screen = bench::render_table(bench::TableKind::kBrief, comparison);
  EXPECT_THAT(screen, ::testing::HasSubstr("WRONG " + tensor));
  EXPECT_EQ(bench::exit_code(comparison), 1);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFault,
                         ::testing::Values("sum_for_mean", "second_step_first", "dropped_bucket",
                                           "stale", "swapped_rows"));

/// `strategies` with the embedding's gradient as rows.
bench::Request sparse_request_for(std::vector<std::string> strategies) {
  bench::Request request = request_for(std::move(strategies));
  request.base.model.tied = false;
  request.base.options.sparse_embedding = true;
  return request;
}

TEST(PlantedFaults, RowsInAnotherOrderAreNoticed) {
  const bench::Comparison comparison = compare(sparse_request_for({"fsdp", "rows_backwards"}));
  const std::vector<bench::Row>& rows = comparison.blocks.at(0).rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].right()) << rows[0].reason;
  EXPECT_TRUE(rows[0].parity.bit_equal);
  EXPECT_EQ(rows[1].state, bench::Row::State::kWrong) << rows[1].reason;
  EXPECT_EQ(rows[1].parity.first_tensor, "wte.weight");
}

TEST(PlantedFaults, RightStrategiesPassTheSameGate) {
  const bench::Comparison comparison = compare(request_for({"ddp", "zero3", "fsdp"}));
  for (const bench::Row& row : comparison.blocks.at(0).rows) {
    EXPECT_TRUE(row.right()) << row.strategy() << ": " << row.reason;
    EXPECT_TRUE(row.parity.bit_equal);
  }
  EXPECT_EQ(bench::exit_code(comparison), 0);
}

}  // namespace
}  // namespace shardbench::testing
