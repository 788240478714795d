#pragma once

#include "common/train/registry.h"
#include "common/train/sharded.h"

namespace shardbench::zero3 {

/// ZeRO stage 3 (Rajbhandari et al. 2020) with whole tensors at owner ranks: a unit is unsharded
/// by a broadcast from each owner and its gradients are averaged by a reduce to each owner.
class Zero3 : public train::ShardedStrategy {
 protected:
  void allocate() override;
  std::vector<sharding::Range> kept_by(int rank) const override;
  std::vector<comm::Work> gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                 comm::Buffer full) override;
  std::vector<comm::Work> reduce(train::ShardedUnit& unit, comm::ConstBuffer full,
                                 comm::Buffer shard, bool accumulate) override;

 private:
  std::vector<int> owner_;  ///< by parameter index
};

/// Adds `zero3` to the registry.
void register_strategy(train::Registry& registry);

}  // namespace shardbench::zero3
