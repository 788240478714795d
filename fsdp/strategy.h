#pragma once

#include "common/train/registry.h"
#include "common/train/sharded.h"

namespace shardbench::fsdp {

/// Fully sharded data parallel (Zhao et al. 2023; per-parameter row shards as in FSDP2): every
/// rank keeps ceil(rows/W) rows of every tensor. A unit is unsharded by one all-gather and its
/// gradients are averaged by one reduce-scatter.
class Fsdp : public train::ShardedStrategy {
 protected:
  std::vector<sharding::Range> kept_by(int rank) const override;
  std::vector<comm::Work> gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                 comm::Buffer full) override;
  std::vector<comm::Work> reduce(train::UnitGradients& unit, comm::ConstBuffer full,
                                 comm::Buffer shard, bool accumulate) override;
};

/// Adds `fsdp` to the registry.
void register_strategy(train::Registry& registry);

}  // namespace shardbench::fsdp
