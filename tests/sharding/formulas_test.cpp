#include "common/sharding/formulas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "common/core/error.h"
#include "common/sharding/flat.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

using comm::CollectiveKind;
using Reshard = FormulaInput::Reshard;
using Key = std::pair<Phase, CollectiveKind>;

constexpr FormulaKind kKinds[] = {FormulaKind::kSingle, FormulaKind::kDdp,   FormulaKind::kZero1,
                                  FormulaKind::kZero2,  FormulaKind::kZero3, FormulaKind::kFsdp};

/// One rank's calls, payload and bytes sent.
struct Sent {
  std::int64_t calls = 0;
  std::int64_t payload = 0;
  std::int64_t bytes = 0;
  friend bool operator==(const Sent&, const Sent&) = default;
};
using Books = std::vector<std::map<Key, Sent>>;  // by rank

/// Plays a step message by message: whoever keeps an element sends it to each rank that lacks it
/// (gather, broadcast), whoever has a gradient of it sends it to the keeper (reduce).
class Enumeration {
 public:
  explicit Enumeration(const FormulaInput& input)
      : input_(input), model_(*input.model), books_(static_cast<std::size_t>(input.world_size)) {}

  Books ddp() {
    for (const Bucket& bucket :
         plan_buckets(model_, input_.bucket_cap_mib, input_.first_bucket_mib)) {
      open(Phase::kBackward, CollectiveKind::kAllReduce, bucket.extent);
      const std::int64_t part = (bucket.extent + world() - 1) / world();
      const std::int64_t step = (part + 15) / 16 * 16;
      for (std::int64_t element = 0; element < bucket.extent; ++element) {
        const int keeper = static_cast<int>(element / step);
        for (int rank = 0; rank < world(); ++rank) {
          if (rank == keeper) continue;
          send(rank, Phase::kBackward, CollectiveKind::kAllReduce);
          send(keeper, Phase::kBackward, CollectiveKind::kAllReduce);
        }
      }
    }
    return books_;
  }

  /// `keeper(parameter, element)`; `per_keeper`: one message per keeper, else one for all.
  Books sharded(const std::function<int(int, std::int64_t)>& keeper, bool per_keeper) {
    const auto gather = per_keeper ? CollectiveKind::kBroadcast : CollectiveKind::kAllGather;
    const auto scatter = per_keeper ? CollectiveKind::kReduce : CollectiveKind::kReduceScatter;
    for (int micro = 0; micro < input_.accumulation; ++micro) {
      for (const UnitShape& unit : plan_units(model_, input_.units)) {
        unit_messages(unit, keeper, per_keeper, false, Phase::kForward, gather);
        const bool again = input_.reshard_after_forward == Reshard::kTrue ||
                           (input_.reshard_after_forward == Reshard::kAuto && unit.anchor != 0);
        if (again) unit_messages(unit, keeper, per_keeper, false, Phase::kBackward, gather);
        unit_messages(unit, keeper, per_keeper, true, Phase::kBackward, scatter);
      }
    }
    return books_;
  }

  /// Gradients bucket by bucket (or unit by unit, every time) to owners, then their weights back.
  Books owners(const std::vector<int>& owner, bool by_bucket) {
    const auto keeper = [&](int p, std::int64_t) { return owner[static_cast<std::size_t>(p)]; };
    std::vector<UnitShape> groups;
    if (by_bucket) {
      for (const Bucket& bucket :
           plan_buckets(model_, input_.bucket_cap_mib, input_.first_bucket_mib)) {
        groups.push_back({"bucket", 0, bucket.parameters});
      }
    } else {
      groups = plan_units(model_, input_.units);
    }
    for (int micro = 0; micro < (by_bucket ? 1 : input_.accumulation); ++micro) {
      for (const UnitShape& group : groups) {
        unit_messages(group, keeper, true, true, Phase::kBackward, CollectiveKind::kReduce);
      }
    }
    UnitShape trainable{"all", 0, {}};
    for (std::size_t p = 0; p < owner.size(); ++p) {
      if (model_.parameters[p].requires_grad) trainable.parameters.push_back(static_cast<int>(p));
    }
    unit_messages(trainable, keeper, true, false, Phase::kOptimizer, CollectiveKind::kBroadcast);
    return books_;
  }

 private:
  int world() const { return input_.world_size; }
  void open(Phase phase, CollectiveKind kind, std::int64_t elements) {
    for (auto& book : books_) {
      Sent& sent = book[{phase, kind}];
      ++sent.calls;
      sent.payload += elements * 4;
    }
  }
  void send(int rank, Phase phase, CollectiveKind kind) {
    books_[static_cast<std::size_t>(rank)][{phase, kind}].bytes += 4;
  }
  void unit_messages(const UnitShape& unit, const std::function<int(int, std::int64_t)>& keeper,
                     bool per_keeper, bool gradients, Phase phase, CollectiveKind kind) {
    std::vector<std::int64_t> kept(static_cast<std::size_t>(world()), 0);
    bool any = false;
    for (int p : unit.parameters) {
      const ParameterShape& parameter = model_.parameters[static_cast<std::size_t>(p)];
      if (gradients && !parameter.requires_grad) continue;
      any = true;
      for (std::int64_t element = 0; element < parameter.numel(); ++element) {
        const int owner = keeper(p, element);
        ++kept[static_cast<std::size_t>(owner)];
        for (int rank = 0; rank < world(); ++rank) {
          if (rank != owner) send(gradients ? rank : owner, phase, kind);
        }
      }
    }
    if (!any) return;
    if (!per_keeper) {
      std::int64_t all = 0;
      for (std::int64_t n : kept) all += n;
      open(phase, kind, all);
      return;
    }
    for (std::int64_t n : kept) {
      if (n > 0) open(phase, kind, n);
    }
  }

  const FormulaInput& input_;
  const ModelShape& model_;
  Books books_;
};

std::map<Key, Sent> by_key(const std::vector<FormulaTraffic>& traffic) {
  std::map<Key, Sent> result;
  for (const FormulaTraffic& entry : traffic) {
    EXPECT_GT(entry.calls, 0);
    result[{entry.phase, entry.kind}] = {entry.calls, entry.payload_bytes, entry.algo_bytes};
  }
  EXPECT_EQ(result.size(), traffic.size());
  return result;
}

/// Models in which every unit is reached by backward.
std::vector<ModelShape> reached_models() {
  std::vector<ModelShape> models = odd_models();
  std::erase_if(models, [](const ModelShape& model) {
    return model.name.find("frozen") != std::string::npos;
  });
  return models;
}

TEST(FormulaTraffic, EqualsMessageByMessageEnumeration) {
  for (const ModelShape& model : reached_models()) {
    for (const int world_size : world_sizes()) {
      const std::vector<int> owner = partition_owners(model, world_size);
      for (const char* units : {"block", "tensor", "whole", "size:40"}) {
        for (const Reshard reshard : {Reshard::kTrue, Reshard::kFalse, Reshard::kAuto}) {
          SCOPED_TRACE(model.name + " " + std::to_string(world_size) + " " + units);
          FormulaInput input;
          input.model = &model;
          input.units = UnitPolicy::parse(units);
          input.world_size = world_size;
          input.accumulation = reshard == Reshard::kAuto ? 3 : 1;
          input.reshard_after_forward = reshard;
          input.bucket_cap_mib = 500.0 / (1 << 20);
          input.first_bucket_mib = 100.0 / (1 << 20);
          const Books ddp = Enumeration(input).ddp();
          const Books zero3 = Enumeration(input).sharded(
              [&](int p, std::int64_t) { return owner[static_cast<std::size_t>(p)]; }, true);
          const Books fsdp = Enumeration(input).sharded(
              [&](int p, std::int64_t element) {
                const ParameterShape& shape = model.parameters[static_cast<std::size_t>(p)];
                const std::int64_t per_rank = (shape.rows() + world_size - 1) / world_size;
                return static_cast<int>(element / shape.row_elements() / per_rank);
              },
              false);
          const Books zero1 = Enumeration(input).owners(owner, true);
          const Books zero2 = Enumeration(input).owners(owner, false);
          for (int rank = 0; rank < world_size; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            EXPECT_EQ(by_key(formula_traffic(FormulaKind::kZero1, input, rank)), zero1[r]);
            EXPECT_EQ(by_key(formula_traffic(FormulaKind::kZero2, input, rank)), zero2[r]);
            EXPECT_EQ(by_key(formula_traffic(FormulaKind::kDdp, input, rank)), ddp[r]);
            EXPECT_EQ(by_key(formula_traffic(FormulaKind::kZero3, input, rank)), zero3[r]);
            EXPECT_EQ(by_key(formula_traffic(FormulaKind::kFsdp, input, rank)), fsdp[r]);
            EXPECT_TRUE(formula_traffic(FormulaKind::kSingle, input, rank).empty());
          }
        }
      }
    }
  }
}

TEST(FormulaTraffic, OneRankCallsButSendsNothing) {
  const ModelShape model = gpt_shape(2, 20, 17, 9, false);
  FormulaInput input;
  input.model = &model;
  for (const FormulaKind kind : {FormulaKind::kDdp, FormulaKind::kZero1, FormulaKind::kZero2,
                                 FormulaKind::kZero3, FormulaKind::kFsdp}) {
    const auto traffic = formula_traffic(kind, input, 0);
    EXPECT_FALSE(traffic.empty());
    for (const FormulaTraffic& entry : traffic) {
      EXPECT_GT(entry.payload_bytes, 0);
      EXPECT_EQ(entry.algo_bytes, 0);
    }
  }
}

TEST(FormulaTraffic, OrderedByPhaseThenKind) {
  const ModelShape model = gpt_shape(2, 20, 17, 9, false);
  FormulaInput input;
  input.model = &model;
  input.world_size = 3;
  for (const FormulaKind kind : kKinds) {
    const auto traffic = formula_traffic(kind, input, 1);
    EXPECT_TRUE(std::is_sorted(traffic.begin(), traffic.end(), [](const auto& a, const auto& b) {
      return Key(a.phase, a.kind) < Key(b.phase, b.kind);
    }));
  }
}

TEST(FormulaTraffic, FrozenModelHasNoBackwardTraffic) {
  for (const ModelShape& model : odd_models()) {
    if (model.name != "all frozen") continue;
    FormulaInput input;
    input.model = &model;
    input.world_size = 2;
    for (const FormulaKind kind : {FormulaKind::kDdp, FormulaKind::kZero1, FormulaKind::kZero2}) {
      EXPECT_TRUE(formula_traffic(kind, input, 0).empty());
    }
    for (const FormulaKind kind : {FormulaKind::kZero3, FormulaKind::kFsdp}) {
      for (const FormulaTraffic& entry : formula_traffic(kind, input, 0)) {
        EXPECT_EQ(entry.phase, Phase::kForward);
      }
    }
  }
}

TEST(FormulaTraffic, FrozenUnitsBeforeTheFirstTrainableOneAreNotGatheredAgain) {
  for (const ModelShape& model : odd_models()) {
    if (model.name != "frozen start") continue;
    FormulaInput input;
    input.model = &model;
    input.world_size = 2;
    const auto books = by_key(formula_traffic(FormulaKind::kFsdp, input, 0));
    EXPECT_EQ(books.at({Phase::kForward, CollectiveKind::kAllGather}).calls, 3);
    // b for its own gradient, c because the gradient passes through it; not a.
    EXPECT_EQ(books.at({Phase::kBackward, CollectiveKind::kAllGather}).calls, 2);
    EXPECT_EQ(books.at({Phase::kBackward, CollectiveKind::kAllGather}).payload, (54 + 36) * 4);
    EXPECT_EQ(books.at({Phase::kBackward, CollectiveKind::kReduceScatter}).calls, 1);
    EXPECT_EQ(books.at({Phase::kBackward, CollectiveKind::kReduceScatter}).payload, 54 * 4);
  }
}

TEST(FormulaMemory, EqualsCountedElements) {
  for (const ModelShape& model : odd_models()) {
    for (const int world_size : world_sizes()) {
      for (const int moments : {0, 1, 2}) {
        FormulaInput input;
        input.model = &model;
        input.world_size = world_size;
        input.optimizer_moments = moments;
        std::int64_t trainable = 0;
        for (const auto& p : model.parameters) trainable += p.requires_grad ? p.numel() : 0;
        for (const FormulaKind kind : {FormulaKind::kZero3, FormulaKind::kFsdp}) {
          FormulaMemory sum;
          for (int rank = 0; rank < world_size; ++rank) {
            const FormulaMemory memory = formula_memory(kind, input, rank);
            EXPECT_GE(memory.padding, 0);
            sum.param += memory.param;
            sum.grad += memory.grad;
            sum.optimizer += memory.optimizer;
          }
          EXPECT_EQ(sum.param, model.parameter_count() * 4);
          EXPECT_EQ(sum.grad, trainable * 4);
          EXPECT_EQ(sum.optimizer, trainable * 4 * moments);
        }
        for (const FormulaKind kind : {FormulaKind::kZero1, FormulaKind::kZero2}) {
          std::int64_t grad = 0;
          std::int64_t optimizer = 0;
          for (int rank = 0; rank < world_size; ++rank) {
            const FormulaMemory memory = formula_memory(kind, input, rank);
            EXPECT_EQ(memory.param, model.parameter_count() * 4);
            grad += memory.grad;
            optimizer += memory.optimizer;
          }
          EXPECT_EQ(grad, trainable * 4 * (kind == FormulaKind::kZero1 ? world_size : 1));
          EXPECT_EQ(optimizer, trainable * 4 * moments);
        }
        for (const FormulaKind kind : {FormulaKind::kSingle, FormulaKind::kDdp}) {
          const FormulaMemory memory = formula_memory(kind, input, world_size - 1);
          EXPECT_EQ(memory.param, model.parameter_count() * 4);
          EXPECT_EQ(memory.grad, trainable * 4);
          EXPECT_EQ(memory.optimizer, trainable * 4 * moments);
        }
      }
    }
  }
}

TEST(FormulaMemory, PaddingOfKnownSizes) {
  ShapeBuilder build;
  build.parameter(0, "a", {5});             // 11 elements of padding
  build.parameter(0, "b", {16, 2}, false);  // none
  build.parameter(0, "c", {1});             // 15
  FormulaInput input;
  input.model = &build.model();
  // 26 in each of parameters, gradients and two moments.
  EXPECT_EQ(formula_memory(FormulaKind::kSingle, input, 0).padding, 4 * 26 * 4);
  EXPECT_EQ(formula_memory(FormulaKind::kDdp, input, 0).padding, 4 * 26 * 4);
  input.world_size = 4;  // rows of a: 2,2,1,0; b: 4 rows each; c: rank 0
  EXPECT_EQ(formula_memory(FormulaKind::kFsdp, input, 0).padding, 4 * ((14 + 15) * 4 + 8));
  EXPECT_EQ(formula_memory(FormulaKind::kFsdp, input, 3).padding, 4 * 8);
  // Owners: b at rank 0, a at rank 1, c at rank 2, nothing at rank 3; weights whole (26).
  EXPECT_EQ(formula_memory(FormulaKind::kZero1, input, 1).padding, 4 * (26 + 26 + 2 * 11));
  EXPECT_EQ(formula_memory(FormulaKind::kZero2, input, 1).padding, 4 * (26 + 3 * 11));
  EXPECT_EQ(formula_memory(FormulaKind::kZero2, input, 3).padding, 4 * 26);
}

TEST(UnshardedBound, RootAndTheLargestRunOfUnits) {
  ShapeBuilder build("bound", "Net");
  build.parameter(0, "own", {3});  // 16 elements in a buffer
  for (const std::int64_t n : {16, 48, 32, 64}) {
    build.parameter(build.module("m" + std::to_string(n), "TransformerBlock"), "w", {n});
  }
  FormulaInput input;
  input.model = &build.model();
  EXPECT_EQ(unsharded_bound_bytes(input, 0), (16 + 64) * 4);
  EXPECT_EQ(unsharded_bound_bytes(input, 1), (16 + 96) * 4);
  EXPECT_EQ(unsharded_bound_bytes(input, 2), (16 + 144) * 4);
  EXPECT_EQ(unsharded_bound_bytes(input, 9), (16 + 160) * 4);
  input.reshard_after_forward = FormulaInput::Reshard::kAuto;
  EXPECT_EQ(unsharded_bound_bytes(input, 1), (16 + 96) * 4);
  input.reshard_after_forward = FormulaInput::Reshard::kFalse;
  EXPECT_EQ(unsharded_bound_bytes(input, 0), 176 * 4);
  input.units = UnitPolicy::parse("whole");
  EXPECT_EQ(unsharded_bound_bytes(input, 1), 176 * 4);
}

TEST(Formulas, RefuseRanksOutsideTheWorld) {
  const ModelShape model = gpt_shape(1, 6, 11, 5, true);
  FormulaInput input;
  input.model = &model;
  EXPECT_THROW(formula_traffic(FormulaKind::kDdp, input, 1), InvariantError);
  EXPECT_THROW(formula_memory(FormulaKind::kFsdp, input, -1), InvariantError);
  input.model = nullptr;
  EXPECT_THROW(formula_memory(FormulaKind::kFsdp, input, 0), InvariantError);
}

}  // namespace
}  // namespace shardbench::sharding
