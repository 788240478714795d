#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/formulas.h"
#include "common/sharding/layout.h"
#include "common/sharding/model_shape.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::bench {

/// How one kind of state is spread over ranks: every rank has all of it, whole tensors lie at one
/// owner each, or every tensor is cut into rows.
enum class Placing { kWhole, kOwner, kRows };

/// What a strategy does with each kind of state.
struct Placement {
  std::string strategy;
  sharding::FormulaKind formula{};
  Placing param = Placing::kWhole;
  Placing grad = Placing::kWhole;
  Placing optimizer = Placing::kWhole;

  /// The placing of what is not whole; kWhole when everything is.
  Placing sharded() const;
};

/// ddp zero1 zero2 zero3 fsdp, in this order.
const std::vector<Placement>& placements();
/// Throws UserError naming the known strategies.
const Placement& placement_of(const std::string& strategy);

/// Moments that AdamW keeps per parameter; layouts are those of training with AdamW.
inline constexpr int kLayoutMoments = 2;
/// Largest world size of a layout: nothing is run, so it may be more than one machine can hold.
inline constexpr int kMostLayoutRanks = 1024;

/// Largest world size whose messages are added up: time grows with the square of the ranks.
inline constexpr int kMostLayoutTrafficRanks = 64;

/// Persistent bytes of one rank.
using RankBytes = sharding::FormulaMemory;

/// What the bytes of a layout depend on, beside model, strategy and world size.
struct LayoutOptions {
  sharding::UnitPolicy units;
  DType compute_dtype = DType::kFloat32;  ///< of weights while they are used, and as they travel
  DType reduce_dtype = DType::kFloat32;   ///< of gradients as they travel
};

/// One strategy at one world size.
struct Layout {
  Placement placement;
  int world_size = 1;
  LayoutOptions options;
  std::vector<int> owner;        ///< by parameter; empty unless something lies at owners
  std::vector<RankBytes> ranks;  ///< by rank
  /// By rank, what it sends in one step of one micro-batch; empty above kMostLayoutTrafficRanks.
  std::vector<std::int64_t> sent_bytes;
  // Over ranks.
  std::int64_t min_bytes = 0;
  std::int64_t max_bytes = 0;
  double mean_bytes = 0;
  int fullest_rank = 0;            ///< the lowest of equal ones
  std::int64_t padding_bytes = 0;  ///< of all ranks together
  int ranks_without = 0;           ///< ranks that keep nothing of what is sharded

  /// Fullest rank over mean; 1 for a model without elements.
  double balance() const;
  /// 0 where they are not known.
  double mean_sent_bytes() const;
};

/// Which rank keeps and sends what: the bytes are those of sharding::formula_memory_by_rank and
/// formula_traffic. Throws UserError for an unknown
/// strategy, SHARDBENCH_CHECK for a world size outside 1..kMostLayoutRanks.
Layout plan_layout(const sharding::ModelShape& model, const std::string& strategy, int world_size,
                   const LayoutOptions& options = {});

/// One unit of a layout: the columns of the units table.
struct UnitLayout {
  std::string name;
  int tensors = 0;
  std::int64_t elements = 0;
  std::int64_t padding_bytes = 0;  ///< of all ranks together; the units' sum is the layout's
  std::int64_t max_bytes = 0;      ///< persistent bytes of this unit on the rank with most of it
  double mean_bytes = 0;
  /// Calls of one optimizer step: made whole in forward and again in backward (all_gather, or one
  /// broadcast per owner); gradients reduced (reduce_scatter, or one reduce per owner). -1: its
  /// messages do not go unit by unit (whole gradients travel in buckets, updated weights by owner).
  int gathers = -1;
  int scatters = -1;

  double balance() const;
  /// Equal in everything but the name.
  bool alike(const UnitLayout& other) const;
};

/// In the order of `units`.
std::vector<UnitLayout> unit_layouts(const sharding::ModelShape& model, const Layout& layout,
                                     const std::vector<sharding::UnitShape>& units);

}  // namespace shardbench::bench
