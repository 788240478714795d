#include "common/sharding/flat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "common/core/error.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

using Keep = std::function<std::vector<Range>(const ModelShape&, int world_size, int rank)>;

std::vector<Range> rows(const ModelShape& model, int world_size, int rank) {
  return keep_rows(model, world_size, rank);
}
std::vector<Range> owned(const ModelShape& model, int world_size, int rank) {
  return keep_owned(model, partition_owners(model, world_size), rank);
}

/// Calls `check` for every odd model, world size and way of sharding.
void for_each_sharding(
    const std::function<void(const ModelShape&, int world_size, const Keep&)>& check) {
  for (const ModelShape& model : odd_models()) {
    for (const int world_size : world_sizes()) {
      for (const Keep& keep : {Keep(rows), Keep(owned)}) {
        SCOPED_TRACE(model.name + " over " + std::to_string(world_size));
        check(model, world_size, keep);
      }
    }
  }
}

std::vector<FlatLayout> all_flat(const ModelShape& model, int world_size, const Keep& keep) {
  std::vector<FlatLayout> by_rank;
  for (int rank = 0; rank < world_size; ++rank) {
    by_rank.push_back(flatten(model, keep(model, world_size, rank)));
  }
  return by_rank;
}

TEST(Keep, RanksCoverEveryElementOnce) {
  for_each_sharding([](const ModelShape& model, int world_size, const Keep& keep) {
    for (std::size_t p = 0; p < model.parameters.size(); ++p) {
      std::vector<int> seen(static_cast<std::size_t>(model.parameters[p].numel()), 0);
      for (int rank = 0; rank < world_size; ++rank) {
        const Range range = keep(model, world_size, rank)[p];
        for (std::int64_t i = range.begin; i < range.end; ++i) ++seen[static_cast<std::size_t>(i)];
      }
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }))
          << model.parameters[p].name;
    }
  });
}

TEST(Keep, RowsOfEighteenOverEight) {
  ShapeBuilder build;
  build.parameter(0, "weight", {18, 4});
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < 8; ++rank) {
    counts.push_back(keep_rows(build.model(), 8, rank)[0].size() / 4);
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, 0, 0}));
}

TEST(Keep, ScalarIsOneRowOfRankZero) {
  ShapeBuilder build;
  build.parameter(0, "scalar", {});
  EXPECT_EQ(keep_rows(build.model(), 3, 0)[0], (Range{0, 1}));
  EXPECT_EQ(keep_rows(build.model(), 3, 1)[0].size(), 0);
  EXPECT_EQ(keep_rows(build.model(), 3, 2)[0].size(), 0);
}

TEST(Flatten, GroupsInOrderAlignedAndWithoutOverlap) {
  for_each_sharding([](const ModelShape& model, int world_size, const Keep& keep) {
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<Range> kept = keep(model, world_size, rank);
      const FlatLayout layout = flatten(model, kept);
      std::int64_t end = 0;
      std::int64_t elements = 0;
      std::int64_t trainable = 0;
      std::int64_t trainable_end = 0;
      int last_group = -1;
      for (const FlatGroup& group : layout.groups) {
        const int order = !group.requires_grad ? 2 : group.decay ? 0 : 1;
        EXPECT_GT(order, last_group);
        last_group = order;
        EXPECT_EQ(group.offset, end);
        ASSERT_FALSE(group.pieces.empty());
        int last_parameter = -1;
        for (const Piece& piece : group.pieces) {
          const ParameterShape& parameter =
              model.parameters[static_cast<std::size_t>(piece.parameter)];
          EXPECT_EQ(parameter.requires_grad, group.requires_grad);
          if (group.requires_grad) {
            EXPECT_EQ(parameter.decay, group.decay);
          }
          EXPECT_GT(piece.parameter, last_parameter);
          last_parameter = piece.parameter;
          EXPECT_EQ(piece.offset % kPieceElements, 0);
          EXPECT_GE(piece.offset, end);
          EXPECT_LT(piece.offset - end, kPieceElements);
          EXPECT_GT(piece.count, 0);
          const Range& range = kept[static_cast<std::size_t>(piece.parameter)];
          EXPECT_EQ((Range{piece.begin, piece.begin + piece.count}), range);
          end = piece.offset + piece.count;
          elements += piece.count;
          if (group.requires_grad) trainable += piece.count;
        }
        EXPECT_LE(end, group.offset + group.extent);
        end = group.offset + group.extent;
        EXPECT_EQ(end % kPieceElements, 0);  // whole vectors to the end: no scalar remainder
        if (group.requires_grad) trainable_end = end;
      }
      EXPECT_EQ(layout.extent, end);
      EXPECT_EQ(layout.trainable_extent, trainable_end);
      EXPECT_EQ(layout.elements, elements);
      EXPECT_EQ(layout.trainable_elements, trainable);
    }
  });
}

TEST(Flatten, PieceOfFindsEveryKeptParameterAndNoOther) {
  for_each_sharding([](const ModelShape& model, int world_size, const Keep& keep) {
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<Range> kept = keep(model, world_size, rank);
      const FlatLayout layout = flatten(model, kept);
      for (std::size_t p = 0; p < kept.size(); ++p) {
        const Piece* piece = layout.piece_of(static_cast<int>(p));
        ASSERT_EQ(piece != nullptr, kept[p].size() > 0);
        if (piece != nullptr) {
          EXPECT_EQ(piece->parameter, static_cast<int>(p));
        }
      }
    }
  });
}

TEST(Flatten, InWholeEveryElementHasOnePlace) {
  for_each_sharding([](const ModelShape& model, int world_size, const Keep& keep) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const FlatLayout whole = flatten(model, keep_all(model), dtype);
      std::vector<int> owners(static_cast<std::size_t>(whole.extent), 0);
      std::int64_t elements = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const FlatLayout own = flatten_in_whole(model, keep(model, world_size, rank), dtype);
        EXPECT_EQ(own.extent, whole.extent);
        elements += own.elements;
        for (const FlatGroup& group : own.groups) {
          for (const Piece& piece : group.pieces) {
            const Piece* all = whole.piece_of(piece.parameter);
            EXPECT_EQ(piece.offset, all->offset + piece.begin);
            EXPECT_LE(piece.offset + piece.count, all->offset + all->count);
            for (std::int64_t i = 0; i < piece.count; ++i) {
              ++owners[static_cast<std::size_t>(piece.offset + i)];
            }
          }
        }
      }
      EXPECT_EQ(elements, whole.elements);
      EXPECT_LE(*std::max_element(owners.begin(), owners.end()), 1);
      EXPECT_EQ(std::accumulate(owners.begin(), owners.end(), std::int64_t{0}), whole.elements);
    }
  });
}

TEST(Flatten, OfNothingIsEmpty) {
  ShapeBuilder build;
  build.parameter(0, "weight", {3, 4});
  const FlatLayout layout = flatten(build.model(), {Range{}});
  EXPECT_TRUE(layout.groups.empty());
  EXPECT_EQ(layout.extent, 0);
  EXPECT_EQ(layout.piece_of(0), nullptr);
}

TEST(Flatten, RefusesRangesOutsideTheParameter) {
  ShapeBuilder build;
  build.parameter(0, "weight", {3, 4});
  EXPECT_THROW(flatten(build.model(), {Range{0, 13}}), InvariantError);
  EXPECT_THROW(flatten(build.model(), {}), InvariantError);
}

TEST(UnitLayout, GatherOfAllShardsGivesTheFullBuffer) {
  for_each_sharding([](const ModelShape& model, int world_size, const Keep& keep) {
    const std::vector<FlatLayout> by_rank = all_flat(model, world_size, keep);
    // Flat memory of each rank: every element holds an id made of (parameter, element).
    const auto id = [](int parameter, std::int64_t element) { return parameter * 1000 + element; };
    for (const UnitPolicy::Kind kind :
         {UnitPolicy::Kind::kWhole, UnitPolicy::Kind::kBlock, UnitPolicy::Kind::kTensor}) {
      for (const UnitShape& unit : plan_units(model, {kind, 0, ""})) {
        const UnitBuffer buffer = unit_buffer(model, unit);
        for (const bool trainable_only : {false, true}) {
          const ShardLayout layout = unit_layout(model, unit, by_rank, trainable_only);
          ASSERT_LE(layout.full_extent(), buffer.extent);
          std::vector<std::int64_t> full(static_cast<std::size_t>(buffer.extent), -1);
          for (int rank = 0; rank < world_size; ++rank) {
            const FlatLayout& flat_layout = by_rank[static_cast<std::size_t>(rank)];
            std::vector<std::int64_t> flat(static_cast<std::size_t>(flat_layout.extent), -2);
            for (const FlatGroup& group : flat_layout.groups) {
              for (const Piece& piece : group.pieces) {
                for (std::int64_t i = 0; i < piece.count; ++i) {
                  flat[static_cast<std::size_t>(piece.offset + i)] =
                      id(piece.parameter, piece.begin + i);
                }
              }
            }
            // Gradients live in the trainable part only.
            if (trainable_only) {
              EXPECT_LE(layout.shard_extent(rank), flat_layout.trainable_extent);
            }
            for (const Segment& segment : layout.segments(rank)) {
              for (std::int64_t i = 0; i < segment.count; ++i) {
                auto& element = full[static_cast<std::size_t>(segment.full_offset + i)];
                EXPECT_EQ(element, -1) << "overlap";
                element = flat.at(static_cast<std::size_t>(segment.shard_offset + i));
              }
            }
          }
          std::int64_t wanted = 0;
          for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
            const auto& parameter = model.parameters[static_cast<std::size_t>(unit.parameters[i])];
            EXPECT_EQ(buffer.offsets[i] % kPieceElements, 0);
            const bool moved = parameter.requires_grad || !trainable_only;
            for (std::int64_t e = 0; e < parameter.numel(); ++e) {
              EXPECT_EQ(full[static_cast<std::size_t>(buffer.offsets[i] + e)],
                        moved ? id(unit.parameters[i], e) : -1);
            }
            if (moved) wanted += parameter.numel();
          }
          EXPECT_EQ(layout.total(), wanted);
        }
      }
    }
  });
}

TEST(PartitionOwners, FallingSizesToTheLightestRank) {
  ShapeBuilder build;
  for (const std::int64_t n : {3, 10, 4, 4, 1, 6}) {
    build.parameter(0, "p" + std::to_string(n), {n});
  }
  // 10 -> 0; 6 -> 1; 4 -> 2 (index 2); 4 -> 2? loads 10,6,4: index 3 -> 2; 3 -> 1; 1 -> 2.
  EXPECT_EQ(partition_owners(build.model(), 3), (std::vector<int>{1, 0, 2, 2, 2, 1}));
  EXPECT_EQ(partition_owners(build.model(), 1), (std::vector<int>{0, 0, 0, 0, 0, 0}));
}

TEST(PartitionOwners, TiesGoByCanonicalOrderAndLowestRank) {
  ShapeBuilder build;
  for (int i = 0; i < 5; ++i) build.parameter(0, fmt::format("p{}", i), {7});
  EXPECT_EQ(partition_owners(build.model(), 3), (std::vector<int>{0, 1, 2, 0, 1}));
}

TEST(PartitionOwners, FewerParametersThanRanks) {
  ShapeBuilder build;
  build.parameter(0, "weight", {1, 1});
  EXPECT_EQ(partition_owners(build.model(), 4), (std::vector<int>{0}));
  const FlatLayout nothing = flatten(build.model(), keep_owned(build.model(), {0}, 3));
  EXPECT_EQ(nothing.extent, 0);
}

TEST(PartitionOwners, NoRankIsAboveTheGreedyBound) {
  for (const ModelShape& model : odd_models()) {
    for (const int world_size : world_sizes()) {
      const std::vector<int> owner = partition_owners(model, world_size);
      std::vector<std::int64_t> load(static_cast<std::size_t>(world_size), 0);
      std::int64_t largest = 0;
      for (std::size_t p = 0; p < owner.size(); ++p) {
        load[static_cast<std::size_t>(owner[p])] += model.parameters[p].numel();
        largest = std::max(largest, model.parameters[p].numel());
      }
      // Graham 1969: a greedy schedule is at most the mean plus the largest piece.
      EXPECT_LE(*std::max_element(load.begin(), load.end()),
                model.parameter_count() / world_size + largest);
      EXPECT_EQ(std::accumulate(load.begin(), load.end(), std::int64_t{0}),
                model.parameter_count());
    }
  }
}

}  // namespace
}  // namespace shardbench::sharding
