#include "zero3/strategy.h"

#include "zero3/owners.h"

namespace shardbench::zero3 {

void Zero3::allocate() {
  owner_ = sharding::partition_owners(model().shape(), comm().world_size());
  ShardedStrategy::allocate();
}

// [hooks]
std::vector<sharding::Range> Zero3::kept_by(int rank) const {
  return sharding::keep_owned(model().shape(), owner_, rank);
}

std::vector<comm::Work> Zero3::gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                      comm::Buffer full) {
  return broadcast_from_owners(comm(), unit.values, shard, full, tag(unit.unit->name));
}

std::vector<comm::Work> Zero3::reduce(train::UnitGradients& unit, comm::ConstBuffer full,
                                      comm::Buffer shard, bool accumulate) {
  return reduce_to_owners(comm(), unit.layout, full, shard, accumulate, tag(unit.unit->name));
}
// [/hooks]

void register_strategy(train::Registry& registry) {
  registry.add({"zero3", "whole tensors at owner ranks; broadcast from and reduce to the owner",
                train::AccumulationOrder::kRanksFirst, sharding::FormulaKind::kZero3,
                [] { return std::make_unique<Zero3>(); }});
}

}  // namespace shardbench::zero3
