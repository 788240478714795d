#include "bench/layout/layout.h"

#include <algorithm>
#include <map>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/sharding/flat.h"

namespace shardbench::bench {
namespace {

using sharding::ModelShape;
using sharding::ParameterShape;
using sharding::SliceRun;

constexpr std::int64_t kElementBytes = 4;  // master weights, gradients and moments are fp32

std::int64_t aligned(std::int64_t elements) {
  return (elements + sharding::kPieceElements - 1) / sharding::kPieceElements *
         sharding::kPieceElements;
}

/// Elements of one rank, and those of them that have gradients; `extent` includes padding.
struct Share {
  std::int64_t elements = 0;
  std::int64_t extent = 0;
  std::int64_t trainable = 0;
  std::int64_t trainable_extent = 0;

  void add(std::int64_t count, bool requires_grad, std::int64_t sign = 1) {
    elements += sign * count;
    extent += sign * aligned(count);
    if (!requires_grad) return;
    trainable += sign * count;
    trainable_extent += sign * aligned(count);
  }
  void add(const Share& other) {
    elements += other.elements;
    extent += other.extent;
    trainable += other.trainable;
    trainable_extent += other.trainable_extent;
  }
};

/// What every rank has of the parameters `which`, by rank.
template <typename Which>
std::vector<Share> shares_of(const ModelShape& model, const Which& which, Placing placing,
                             const std::vector<int>& owner, int world_size) {
  std::vector<Share> shares(static_cast<std::size_t>(world_size) + 1);
  for (const std::size_t i : which) {
    const ParameterShape& parameter = model.parameters[i];
    switch (placing) {
      case Placing::kWhole:
        shares[0].add(parameter.numel(), parameter.requires_grad);
        break;
      case Placing::kOwner:
        shares[static_cast<std::size_t>(owner[i])].add(parameter.numel(), parameter.requires_grad);
        break;
      case Placing::kRows:
        // Steps up and down; summed up below.
        for (const SliceRun& run : sharding::slice_runs(parameter.rows(), world_size)) {
          const std::int64_t count = run.count * parameter.row_elements();
          shares[static_cast<std::size_t>(run.first_rank)].add(count, parameter.requires_grad);
          shares[static_cast<std::size_t>(run.last_rank) + 1].add(count, parameter.requires_grad,
                                                                  -1);
        }
        break;
    }
  }
  shares.pop_back();
  if (placing == Placing::kRows) {
    for (std::size_t r = 1; r < shares.size(); ++r) shares[r].add(shares[r - 1]);
  } else if (placing == Placing::kWhole) {
    std::fill(shares.begin() + 1, shares.end(), shares[0]);
  }
  return shares;
}

/// Bytes by rank of the parameters `which`.
template <typename Which>
std::vector<RankBytes> bytes_of(const ModelShape& model, const Which& which,
                                const Placement& placement, const std::vector<int>& owner,
                                int world_size) {
  std::vector<RankBytes> ranks(static_cast<std::size_t>(world_size));
  for (const Placing placing : {Placing::kWhole, Placing::kOwner, Placing::kRows}) {
    const bool param = placement.param == placing;
    const bool grad = placement.grad == placing;
    const std::int64_t moments = placement.optimizer == placing ? kLayoutMoments : 0;
    if (!param && !grad && moments == 0) continue;
    const std::vector<Share> shares = shares_of(model, which, placing, owner, world_size);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Share& share = shares[r];
      const std::int64_t padding = share.trainable_extent - share.trainable;
      if (param) {
        ranks[r].param = share.elements * kElementBytes;
        ranks[r].padding += (share.extent - share.elements) * kElementBytes;
      }
      if (grad) {
        ranks[r].grad = share.trainable * kElementBytes;
        ranks[r].padding += padding * kElementBytes;
      }
      if (moments > 0) {
        ranks[r].optimizer = moments * share.trainable * kElementBytes;
        ranks[r].padding += moments * padding * kElementBytes;
      }
    }
  }
  return ranks;
}

std::vector<std::size_t> all_parameters(const ModelShape& model) {
  std::vector<std::size_t> all(model.parameters.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

/// Bytes of what the placement spreads: to see which ranks keep nothing of it.
std::int64_t sharded_bytes(const Placement& placement, const RankBytes& rank) {
  std::int64_t bytes = 0;
  if (placement.param != Placing::kWhole) bytes += rank.param;
  if (placement.grad != Placing::kWhole) bytes += rank.grad;
  if (placement.optimizer != Placing::kWhole) bytes += rank.optimizer;
  return bytes;
}

void summarise(Layout& layout) {
  const auto bytes = [](const RankBytes& rank) { return rank.persistent(); };
  const auto [least, most] = std::ranges::minmax(layout.ranks, {}, bytes);
  layout.min_bytes = least.persistent();
  layout.max_bytes = most.persistent();
  layout.fullest_rank = static_cast<int>(std::ranges::find(layout.ranks, layout.max_bytes, bytes) -
                                         layout.ranks.begin());
  const bool sharded = layout.placement.sharded() != Placing::kWhole;
  std::int64_t total = 0;
  for (const RankBytes& rank : layout.ranks) {
    total += rank.persistent();
    layout.padding_bytes += rank.padding;
    if (sharded && sharded_bytes(layout.placement, rank) == 0) ++layout.ranks_without;
  }
  layout.mean_bytes = static_cast<double>(total) / layout.world_size;
}

double over_mean(std::int64_t max_bytes, double mean_bytes) {
  return mean_bytes == 0 ? 1 : static_cast<double>(max_bytes) / mean_bytes;
}

}  // namespace

Placing Placement::sharded() const { return optimizer; }

const std::vector<Placement>& placements() {
  // Each keeps at least as much sharded as the one before; the optimizer's state comes first.
  static const std::vector<Placement> kPlacements = {
      {"ddp", Placing::kWhole, Placing::kWhole, Placing::kWhole},
      {"zero1", Placing::kWhole, Placing::kWhole, Placing::kOwner},
      {"zero2", Placing::kWhole, Placing::kOwner, Placing::kOwner},
      {"zero3", Placing::kOwner, Placing::kOwner, Placing::kOwner},
      {"fsdp", Placing::kRows, Placing::kRows, Placing::kRows}};
  return kPlacements;
}

const Placement& placement_of(const std::string& strategy) {
  std::vector<std::string> names;
  for (const Placement& placement : placements()) {
    if (placement.strategy == strategy) return placement;
    names.push_back(placement.strategy);
  }
  throw UserError::format("unknown strategy '{}': choose from {}{}", strategy, join(names),
                          did_you_mean(strategy, names));
}

double Layout::balance() const { return over_mean(max_bytes, mean_bytes); }
double UnitLayout::balance() const { return over_mean(max_bytes, mean_bytes); }

bool UnitLayout::alike(const UnitLayout& other) const {
  return tensors == other.tensors && elements == other.elements &&
         padding_bytes == other.padding_bytes && max_bytes == other.max_bytes &&
         mean_bytes == other.mean_bytes && gathers == other.gathers && scatters == other.scatters;
}

Layout plan_layout(const ModelShape& model, const std::string& strategy, int world_size) {
  SHARDBENCH_CHECK(world_size >= 1 && world_size <= kMostLayoutRanks, "{} ranks", world_size);
  Layout layout;
  layout.placement = placement_of(strategy);
  layout.world_size = world_size;
  if (layout.placement.sharded() == Placing::kOwner) {
    layout.owner = sharding::partition_owners(model, world_size);
  }
  layout.ranks = bytes_of(model, all_parameters(model), layout.placement, layout.owner, world_size);
  summarise(layout);
  return layout;
}

std::vector<UnitLayout> unit_layouts(const ModelShape& model, const Layout& layout,
                                     const std::vector<sharding::UnitShape>& units) {
  const Placement& placement = layout.placement;
  std::vector<UnitLayout> result;
  for (const sharding::UnitShape& unit : units) {
    UnitLayout row;
    row.name = unit.name;
    row.tensors = static_cast<int>(unit.parameters.size());
    const std::vector<std::size_t> which(unit.parameters.begin(), unit.parameters.end());
    std::int64_t total = 0;
    for (const RankBytes& rank :
         bytes_of(model, which, placement, layout.owner, layout.world_size)) {
      row.max_bytes = std::max(row.max_bytes, rank.persistent());
      row.padding_bytes += rank.padding;
      total += rank.persistent();
    }
    row.mean_bytes = static_cast<double>(total) / layout.world_size;

    // Owners of something, and of something that has gradients: each is one call.
    std::map<int, bool> owners;
    bool trainable = false;
    for (const std::size_t i : which) {
      const ParameterShape& parameter = model.parameters[i];
      row.elements += parameter.numel();
      trainable = trainable || parameter.requires_grad;
      if (layout.owner.empty() || parameter.numel() == 0) continue;
      bool& reduces = owners[layout.owner[i]];
      reduces = reduces || parameter.requires_grad;
    }
    const auto reducing = static_cast<int>(
        std::ranges::count_if(owners, [](const auto& owner) { return owner.second; }));
    if (placement.param == Placing::kRows) row.gathers = 2;
    if (placement.param == Placing::kOwner) row.gathers = 2 * static_cast<int>(owners.size());
    if (placement.grad == Placing::kRows) row.scatters = trainable ? 1 : 0;
    if (placement.grad == Placing::kOwner) row.scatters = reducing;
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace shardbench::bench
