#include "zero3/strategy.h"

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
  std::vector<comm::Work> works;
  for (int owner = 0; owner < comm().world_size(); ++owner) {
    if (unit.values.count(owner) == 0) continue;
    works.push_back(comm().broadcast(unit.values, owner, shard, full, tag(unit.unit->name)));
  }
  return works;
}

std::vector<comm::Work> Zero3::reduce(train::ShardedUnit& unit, comm::ConstBuffer full,
                                      comm::Buffer shard, bool accumulate) {
  std::vector<comm::Work> works;
  for (int owner = 0; owner < comm().world_size(); ++owner) {
    if (unit.gradients.count(owner) == 0) continue;
    works.push_back(comm().reduce(unit.gradients, owner, full, shard, comm::ReduceOp::kAverage,
                                  accumulate, tag(unit.unit->name)));
  }
  return works;
}
// [/hooks]

void register_strategy(train::Registry& registry) {
  registry.add({"zero3", "whole tensors at owner ranks; broadcast from and reduce to the owner",
                train::AccumulationOrder::kRanksFirst, sharding::FormulaKind::kZero3,
                [] { return std::make_unique<Zero3>(); }});
}

}  // namespace shardbench::zero3
