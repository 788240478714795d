// Layouts against a second derivation of every rule, element by element.

#include "bench/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/core/error.h"
#include "common/models/config.h"
#include "common/sharding/flat.h"
#include "common/sharding/formulas.h"
#include "tests/sharding/shapes.h"

namespace shardbench::bench {
namespace {

using sharding::ModelShape;
using sharding::ParameterShape;
using ::testing::HasSubstr;

ModelShape model_named(const std::string& name, bool tied = true) {
  models::ModelConfig config = models::preset(name);
  config.tied = tied;
  return models::shape_of(config);
}

/// Tensors of five rows and of one, a scalar and an empty one among ordinary ones.
ModelShape odd_model() {
  sharding::ShapeBuilder build("odd");
  const int a = build.module("a", "Linear");
  build.parameter(a, "five", {5, 33});
  build.parameter(a, "one", {1, 70});
  const int b = build.module("b", "Linear");
  build.parameter(b, "scalar", {});
  build.parameter(b, "empty", {0, 4});
  build.parameter(b, "wide", {18, 7, 3});
  build.parameter(b, "bias", {18});
  return build.model();
}

std::vector<ModelShape> models_under_test() {
  return {model_named("gpt2-nano"), model_named("gpt2"), model_named("gpt2", false),
          model_named("mlp"), odd_model()};
}

std::vector<int> worlds_under_test() {
  std::vector<int> worlds(17);
  std::iota(worlds.begin(), worlds.end(), 1);
  worlds.insert(worlds.end(), {64, 1000, 1024});
  return worlds;
}

std::int64_t padding_of(std::int64_t elements) { return (64 - elements * 4 % 64) % 64; }

/// The greedy rule in its plainest form: again and again the largest tensor left (of equal ones the
/// first) goes to the rank with the least (of equal ones the lowest).
std::vector<int> greedy_owners(const ModelShape& model, int world_size) {
  std::vector<int> owner(model.parameters.size(), -1);
  std::vector<std::int64_t> load(static_cast<std::size_t>(world_size), 0);
  for (std::size_t round = 0; round < owner.size(); ++round) {
    int largest = -1;
    for (std::size_t i = 0; i < owner.size(); ++i) {
      if (owner[i] >= 0) continue;
      if (largest < 0 || model.parameters[i].numel() >
                             model.parameters[static_cast<std::size_t>(largest)].numel()) {
        largest = static_cast<int>(i);
      }
    }
    int lightest = 0;
    for (int rank = 1; rank < world_size; ++rank) {
      if (load[static_cast<std::size_t>(rank)] < load[static_cast<std::size_t>(lightest)]) {
        lightest = rank;
      }
    }
    owner[static_cast<std::size_t>(largest)] = lightest;
    load[static_cast<std::size_t>(lightest)] +=
        model.parameters[static_cast<std::size_t>(largest)].numel();
  }
  return owner;
}

/// Rank of every row, one row after the other.
std::vector<int> rank_of_rows(std::int64_t rows, int world_size) {
  const std::int64_t part = (rows + world_size - 1) / world_size;
  std::vector<int> ranks;
  for (std::int64_t row = 0; row < rows; ++row) ranks.push_back(static_cast<int>(row / part));
  return ranks;
}

/// Elements of each parameter that each rank keeps: kept[rank][parameter].
using Kept = std::vector<std::vector<std::int64_t>>;

Kept nothing(const ModelShape& model, int world_size) {
  return Kept(static_cast<std::size_t>(world_size),
              std::vector<std::int64_t>(model.parameters.size(), 0));
}

Kept owned_by(const ModelShape& model, const std::vector<int>& owner, int world_size) {
  Kept kept = nothing(model, world_size);
  for (std::size_t i = 0; i < owner.size(); ++i) {
    kept[static_cast<std::size_t>(owner[i])][i] = model.parameters[i].numel();
  }
  return kept;
}

Kept rows_kept(const ModelShape& model, int world_size) {
  Kept kept = nothing(model, world_size);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterShape& parameter = model.parameters[i];
    for (const int rank : rank_of_rows(parameter.rows(), world_size)) {
      kept[static_cast<std::size_t>(rank)][i] += parameter.row_elements();
    }
  }
  return kept;
}

RankBytes bytes_of(const std::vector<std::int64_t>& param, const std::vector<std::int64_t>& grad,
                   const std::vector<std::int64_t>& state) {
  RankBytes bytes;
  for (std::size_t i = 0; i < param.size(); ++i) {
    bytes.param += param[i] * 4;
    bytes.grad += grad[i] * 4;
    bytes.optimizer += state[i] * 8;
    bytes.padding += padding_of(param[i]) + padding_of(grad[i]) + 2 * padding_of(state[i]);
  }
  return bytes;
}

TEST(Layout, EveryTensorHasTheOwnerThatTheGreedyRuleGives) {
  for (const ModelShape& model : models_under_test()) {
    for (const int world_size : worlds_under_test()) {
      const std::vector<int> expected = greedy_owners(model, world_size);
      for (const char* strategy : {"zero1", "zero2", "zero3"}) {
        ASSERT_EQ(plan_layout(model, strategy, world_size).owner, expected)
            << model.name << " W=" << world_size;
      }
      EXPECT_TRUE(plan_layout(model, "fsdp", world_size).owner.empty());
    }
  }
}

TEST(Layout, EveryRowIsKeptExactlyOnce) {
  for (const ModelShape& model : models_under_test()) {
    for (const int world_size : worlds_under_test()) {
      for (const ParameterShape& parameter : model.parameters) {
        const std::vector<int> ranks = rank_of_rows(parameter.rows(), world_size);
        std::int64_t next = 0;
        std::int64_t before = parameter.rows();
        for (int rank = 0; rank < world_size; ++rank) {
          const sharding::Range range = sharding::slice_of(parameter.rows(), world_size, rank);
          ASSERT_EQ(range.size(), std::ranges::count(ranks, rank))
              << parameter.name << " rank " << rank << " of " << world_size;
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.size(), before);  // later ranks never have more
          next = range.end;
          before = range.size();
        }
        ASSERT_EQ(next, parameter.rows());
      }
    }
  }
}

TEST(Layout, RunsOfRowsSayTheSameAsRankByRank) {
  for (std::int64_t rows = 0; rows <= 70; ++rows) {
    for (int world_size = 1; world_size <= 40; ++world_size) {
      const auto runs = sharding::slice_runs(rows, world_size);
      ASSERT_LE(runs.size(), 3u);
      int rank = 0;
      for (const sharding::SliceRun& run : runs) {
        ASSERT_EQ(run.first_rank, rank);
        for (; rank <= run.last_rank; ++rank) {
          ASSERT_EQ(sharding::slice_of(rows, world_size, rank).size(), run.count)
              << rows << " rows, rank " << rank << " of " << world_size;
        }
      }
      ASSERT_EQ(rank, world_size);
    }
  }
  using Runs = std::vector<sharding::SliceRun>;
  EXPECT_EQ(sharding::slice_runs(5, 4), (Runs{{0, 1, 2}, {2, 2, 1}, {3, 3, 0}}));
  EXPECT_EQ(sharding::slice_runs(1, 1024), (Runs{{0, 0, 1}, {1, 1023, 0}}));
  EXPECT_EQ(sharding::slice_runs(0, 3), (Runs{{0, 2, 0}}));
}

TEST(Layout, BytesOfEveryRankByAddition) {
  for (const ModelShape& model : models_under_test()) {
    for (const int world_size : worlds_under_test()) {
      Kept whole = nothing(model, world_size);
      for (auto& rank : whole) {
        for (std::size_t i = 0; i < rank.size(); ++i) rank[i] = model.parameters[i].numel();
      }
      const Kept owned = owned_by(model, greedy_owners(model, world_size), world_size);
      const Kept rows = rows_kept(model, world_size);
      const auto check = [&](const char* strategy, const Kept& param, const Kept& grad,
                             const Kept& state) {
        const Layout layout = plan_layout(model, strategy, world_size);
        std::int64_t total = 0;
        std::int64_t padding = 0;
        std::int64_t least = layout.max_bytes;
        int without = 0;
        for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
          const RankBytes expected = bytes_of(param[r], grad[r], state[r]);
          ASSERT_EQ(layout.ranks[r], expected)
              << strategy << ' ' << model.name << " rank " << r << " of " << world_size;
          total += expected.persistent();
          padding += expected.padding;
          least = std::min(least, expected.persistent());
          EXPECT_LE(expected.persistent(), layout.max_bytes);
          without += expected.optimizer == 0 ? 1 : 0;
        }
        EXPECT_EQ(layout.padding_bytes, padding);
        EXPECT_EQ(layout.min_bytes, least);
        EXPECT_DOUBLE_EQ(layout.mean_bytes, static_cast<double>(total) / world_size);
        EXPECT_EQ(layout.ranks[static_cast<std::size_t>(layout.fullest_rank)].persistent(),
                  layout.max_bytes);
        EXPECT_EQ(layout.ranks_without, without) << strategy << " W=" << world_size;
      };
      check("ddp", whole, whole, whole);
      check("zero1", whole, whole, owned);
      check("zero2", whole, owned, owned);
      check("zero3", owned, owned, owned);
      check("fsdp", rows, rows, rows);
    }
  }
}

TEST(Layout, AgreesWithTheFormulas) {
  using sharding::FormulaKind;
  const std::vector<std::pair<std::string, FormulaKind>> kinds = {{"ddp", FormulaKind::kDdp},
                                                                  {"zero1", FormulaKind::kZero1},
                                                                  {"zero2", FormulaKind::kZero2},
                                                                  {"zero3", FormulaKind::kZero3},
                                                                  {"fsdp", FormulaKind::kFsdp}};
  std::vector<ModelShape> models = sharding::odd_models();  // frozen, empty, scalar, tied
  models.push_back(model_named("gpt2-nano"));
  for (const ModelShape& model : models) {
    for (const int world_size : {1, 2, 3, 5, 8, 17}) {
      sharding::FormulaInput input;
      input.model = &model;
      input.world_size = world_size;
      for (const auto& [strategy, kind] : kinds) {
        const Layout layout = plan_layout(model, strategy, world_size);
        for (int rank = 0; rank < world_size; ++rank) {
          const auto expected = sharding::formula_memory(kind, input, rank);
          const RankBytes& bytes = layout.ranks[static_cast<std::size_t>(rank)];
          EXPECT_EQ(bytes.param, expected.param) << strategy << ' ' << model.name;
          EXPECT_EQ(bytes.grad, expected.grad) << strategy << ' ' << model.name;
          EXPECT_EQ(bytes.optimizer, expected.optimizer) << strategy << ' ' << model.name;
          EXPECT_EQ(bytes.padding, expected.padding)
              << strategy << ' ' << model.name << " rank " << rank << " of " << world_size;
        }
      }
    }
  }
}

// Every figure by hand: two ranks, a matrix of 3 x 8 and a vector of 5, pieces of 64 bytes.
TEST(Layout, KeepsAndSendsByDtype) {
  sharding::ShapeBuilder build("two");
  build.parameter(build.module("a", "Linear"), "weight", {3, 8});
  build.parameter(build.module("b", "Linear"), "bias", {5});
  const ModelShape model = build.model();
  const LayoutOptions bf16 = {{}, DType::kBFloat16, DType::kFloat32};
  const LayoutOptions narrow = {{}, DType::kBFloat16, DType::kBFloat16};

  // 29 whole weights in bf16, masters, gradients and two moments in fp32.
  Layout ddp = plan_layout(model, "ddp", 2, bf16);
  EXPECT_EQ(ddp.ranks[1].param, 29 * 2 + 29 * 4);
  EXPECT_EQ(ddp.ranks[1].grad, 29 * 4);
  EXPECT_EQ(ddp.ranks[1].optimizer, 2 * 29 * 4);
  // To 64 bytes: 24 bf16 -> 32 and 5 -> 32; in fp32 24 -> 32 and 5 -> 16, four times.
  EXPECT_EQ(ddp.ranks[1].padding, (8 + 27) * 2 + 4 * (8 + 11) * 4);
  // Its bucket of 48 elements travels as fp32: S + (W-2)s = S. In bf16: a bucket of as many.
  EXPECT_EQ(ddp.sent_bytes, (std::vector<std::int64_t>{48 * 4, 48 * 4}));
  EXPECT_EQ(plan_layout(model, "ddp", 2, narrow).sent_bytes[0], 48 * 2);

  // zero1: masters at owners. Rank 0 owns the matrix, rank 1 the vector.
  const Layout zero1 = plan_layout(model, "zero1", 2, bf16);
  EXPECT_EQ(zero1.ranks[0].param, 29 * 2 + 24 * 4);
  EXPECT_EQ(zero1.ranks[1].param, 29 * 2 + 5 * 4);
  // Reduces what the other owns in fp32, broadcasts its own in bf16.
  EXPECT_EQ(zero1.sent_bytes, (std::vector<std::int64_t>{5 * 4 + 24 * 2, 24 * 4 + 5 * 2}));

  // fsdp keeps no copy in bf16: rows 0-1 and 0-2, rows 2 and 3-4.
  const Layout fsdp = plan_layout(model, "fsdp", 2, narrow);
  EXPECT_EQ(fsdp.ranks[0].param, (16 + 3) * 4);
  EXPECT_EQ(fsdp.ranks[1].param, (8 + 2) * 4);
  // Two gathers of its own part, one scatter of the other's, all in bf16.
  EXPECT_EQ(fsdp.sent_bytes, (std::vector<std::int64_t>{2 * 19 * 2 + 10 * 2, 2 * 10 * 2 + 19 * 2}));
  EXPECT_DOUBLE_EQ(fsdp.mean_sent_bytes(), 87);
}

TEST(Layout, MessagesAreAddedUpForWorldsThatCompareTakes) {
  const ModelShape model = model_named("gpt2-nano");
  EXPECT_EQ(plan_layout(model, "zero3", kMostLayoutTrafficRanks).sent_bytes.size(), 64u);
  EXPECT_TRUE(plan_layout(model, "zero3", kMostLayoutTrafficRanks + 1).sent_bytes.empty());
}

TEST(Layout, KnownFigures) {
  const ModelShape gpt2 = model_named("gpt2");
  const Layout ddp = plan_layout(gpt2, "ddp", 8);
  EXPECT_EQ(ddp.max_bytes, 16 * std::int64_t{124'439'808});
  EXPECT_DOUBLE_EQ(ddp.balance(), 1);
  // The embedding of 38,597,376 elements cannot be cut, so its owner keeps 2.48 times the mean.
  const Layout zero3 = plan_layout(gpt2, "zero3", 8);
  EXPECT_EQ(zero3.max_bytes, 16 * std::int64_t{38'597'376});
  EXPECT_EQ(zero3.fullest_rank, 0);
  EXPECT_NEAR(zero3.balance(), 38'597'376.0 * 8 / 124'439'808, 1e-12);
  // 50257 rows over 8: seven ranks keep 6283, the last one 6276.
  const Layout fsdp = plan_layout(gpt2, "fsdp", 8);
  EXPECT_EQ(fsdp.ranks.front().param - fsdp.ranks.back().param, 7 * 768 * 4);
  // At most 148 of 1024 ranks own a tensor.
  EXPECT_EQ(plan_layout(gpt2, "zero3", 1024).ranks_without, 1024 - 148);
  EXPECT_EQ(plan_layout(gpt2, "ddp", 1024).ranks_without, 0);
}

TEST(Layout, RefusesWhatItDoesNotKnow) {
  const ModelShape model = odd_model();
  try {
    plan_layout(model, "zero4", 2);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("zero4"));
    EXPECT_THAT(error.what(), HasSubstr("ddp, zero1, zero2, zero3, fsdp"));
  }
  EXPECT_THROW(plan_layout(model, "fsdp", 0), InvariantError);
  EXPECT_THROW(plan_layout(model, "fsdp", kMostLayoutRanks + 1), InvariantError);
}

TEST(UnitLayouts, AddUpToTheLayoutAndToTheFormulasCalls) {
  using sharding::FormulaKind;
  const std::vector<std::pair<std::string, FormulaKind>> kinds = {
      {"zero2", FormulaKind::kZero2}, {"zero3", FormulaKind::kZero3}, {"fsdp", FormulaKind::kFsdp}};
  for (const ModelShape& model : {model_named("gpt2-nano"), model_named("mlp")}) {
    for (const char* policy : {"block", "tensor", "whole"}) {
      const auto units = sharding::plan_units(model, sharding::UnitPolicy::parse(policy));
      for (const int world_size : {1, 2, 5, 16}) {
        sharding::FormulaInput input;
        input.model = &model;
        input.units = sharding::UnitPolicy::parse(policy);
        input.world_size = world_size;
        for (const auto& [strategy, kind] : kinds) {
          const Layout layout = plan_layout(model, strategy, world_size);
          std::int64_t elements = 0, padding = 0, gathers = 0, scatters = 0;
          double mean = 0;
          for (const UnitLayout& unit : unit_layouts(model, layout, units)) {
            elements += unit.elements;
            padding += unit.padding_bytes;
            mean += unit.mean_bytes;
            gathers += std::max(0, unit.gathers);
            scatters += unit.scatters;
          }
          EXPECT_EQ(elements, model.parameter_count());
          EXPECT_EQ(padding, layout.padding_bytes);
          EXPECT_NEAR(mean, layout.mean_bytes, 1e-6 * mean);
          std::int64_t gather_calls = 0, reduce_calls = 0;
          for (const auto& entry : sharding::formula_traffic(kind, input, 0)) {
            const bool reduces = entry.kind == comm::CollectiveKind::kReduce ||
                                 entry.kind == comm::CollectiveKind::kReduceScatter;
            if (reduces) reduce_calls += entry.calls;
            if (!reduces && entry.phase != Phase::kOptimizer) gather_calls += entry.calls;
          }
          EXPECT_EQ(gathers, gather_calls) << strategy << " W=" << world_size << ' ' << policy;
          EXPECT_EQ(scatters, reduce_calls) << strategy << " W=" << world_size << ' ' << policy;
        }
      }
    }
  }
}

TEST(UnitLayouts, OfOddTensors) {
  const ModelShape model = odd_model();
  const auto units = sharding::plan_units(model, sharding::UnitPolicy::parse("block"));
  const Layout fsdp = plan_layout(model, "fsdp", 4);
  const std::vector<UnitLayout> rows = unit_layouts(model, fsdp, units);
  ASSERT_EQ(rows.size(), 2u);
  // Unit a: rank 0 keeps two rows of 33 and the one row of 70.
  EXPECT_EQ(rows[0].name, "a");
  EXPECT_EQ(rows[0].elements, 5 * 33 + 70);
  EXPECT_EQ(rows[0].max_bytes, 16 * (2 * 33 + 70));
  EXPECT_DOUBLE_EQ(rows[0].mean_bytes, 16 * (5 * 33 + 70) / 4.0);
  EXPECT_EQ(rows[0].gathers, 2);
  EXPECT_EQ(rows[0].scatters, 1);
  // Pieces of 66, 66 and 33 elements, and of 70: 56, 56, 60 and 40 bytes to the next 64, four
  // times.
  EXPECT_EQ(rows[0].padding_bytes, 4 * (56 + 56 + 60 + 40));
  const std::vector<UnitLayout> whole = unit_layouts(model, plan_layout(model, "ddp", 4), units);
  EXPECT_EQ(whole[0].gathers, -1);
  EXPECT_EQ(whole[0].scatters, -1);
  EXPECT_DOUBLE_EQ(whole[0].balance(), 1);
}

}  // namespace
}  // namespace shardbench::bench
