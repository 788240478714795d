#include "bench/layout/layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/sharding/flat.h"

namespace shardbench::bench {
namespace {

using sharding::FormulaKind;
using sharding::ModelShape;
using sharding::ParameterShape;

sharding::FormulaInput input_of(const ModelShape& model, const Layout& layout) {
  sharding::FormulaInput input;
  input.model = &model;
  input.units = layout.options.units;
  input.world_size = layout.world_size;
  input.compute_dtype = layout.options.compute_dtype;
  input.reduce_dtype = layout.options.reduce_dtype;
  input.optimizer_moments = kLayoutMoments;
  return input;
}

std::vector<int> all_parameters(const ModelShape& model) {
  std::vector<int> all(model.parameters.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Bytes that every rank sends in one step.
std::vector<std::int64_t> sent_by_rank(const ModelShape& model, const Layout& layout) {
  const sharding::FormulaInput input = input_of(model, layout);
  std::vector<std::int64_t> sent(static_cast<std::size_t>(layout.world_size), 0);
  for (int rank = 0; rank < layout.world_size; ++rank) {
    for (const auto& entry : formula_traffic(layout.placement.formula, input, rank)) {
      sent[static_cast<std::size_t>(rank)] += entry.algo_bytes;
    }
  }
  return sent;
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
      {"ddp", FormulaKind::kDdp, Placing::kWhole, Placing::kWhole, Placing::kWhole},
      {"zero1", FormulaKind::kZero1, Placing::kWhole, Placing::kWhole, Placing::kOwner},
      {"zero2", FormulaKind::kZero2, Placing::kWhole, Placing::kOwner, Placing::kOwner},
      {"zero3", FormulaKind::kZero3, Placing::kOwner, Placing::kOwner, Placing::kOwner},
      {"fsdp", FormulaKind::kFsdp, Placing::kRows, Placing::kRows, Placing::kRows}};
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
double Layout::mean_sent_bytes() const {
  if (sent_bytes.empty()) return 0;
  return static_cast<double>(std::reduce(sent_bytes.begin(), sent_bytes.end())) / world_size;
}
double UnitLayout::balance() const { return over_mean(max_bytes, mean_bytes); }

bool UnitLayout::alike(const UnitLayout& other) const {
  return tensors == other.tensors && elements == other.elements &&
         padding_bytes == other.padding_bytes && max_bytes == other.max_bytes &&
         mean_bytes == other.mean_bytes && gathers == other.gathers && scatters == other.scatters;
}

Layout plan_layout(const ModelShape& model, const std::string& strategy, int world_size,
                   const LayoutOptions& options) {
  SHARDBENCH_CHECK(world_size >= 1 && world_size <= kMostLayoutRanks, "{} ranks", world_size);
  Layout layout;
  layout.placement = placement_of(strategy);
  layout.world_size = world_size;
  layout.options = options;
  if (layout.placement.sharded() == Placing::kOwner) {
    layout.owner = sharding::partition_owners(model, world_size);
  }
  layout.ranks = formula_memory_by_rank(layout.placement.formula, input_of(model, layout),
                                        all_parameters(model));
  if (world_size <= kMostLayoutTrafficRanks) layout.sent_bytes = sent_by_rank(model, layout);
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
    std::int64_t total = 0;
    for (const RankBytes& rank :
         formula_memory_by_rank(placement.formula, input_of(model, layout), unit.parameters)) {
      row.max_bytes = std::max(row.max_bytes, rank.persistent());
      row.padding_bytes += rank.padding;
      total += rank.persistent();
    }
    row.mean_bytes = static_cast<double>(total) / layout.world_size;

    // Owners of something, and of something that has gradients: each is one call.
    std::map<int, bool> owners;
    bool trainable = false;
    for (const int p : unit.parameters) {
      const auto i = static_cast<std::size_t>(p);
      const ParameterShape& parameter = model.parameters[i];
      row.elements += parameter.numel();
      trainable = trainable || parameter.requires_grad;
      if (layout.owner.empty() || parameter.numel() == 0) continue;
      bool& reduces = owners[layout.owner[i]];
      reduces = reduces || parameter.requires_grad;
    }
    const auto reducing = static_cast<int>(
        std::ranges::count_if(owners, [](const auto& owner) { return owner.second; }));
    const int passes = sharding::is_read_in_backward(model, unit.parameters) ? 2 : 1;
    if (placement.param == Placing::kRows) row.gathers = passes;
    if (placement.param == Placing::kOwner) {
      row.gathers = passes * static_cast<int>(owners.size());
    }
    if (placement.grad == Placing::kRows) row.scatters = trainable ? 1 : 0;
    if (placement.grad == Placing::kOwner) row.scatters = reducing;
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace shardbench::bench
