#include "fsdp/strategy.h"

namespace shardbench::fsdp {

// [hooks]
std::vector<sharding::Range> Fsdp::kept_by(int rank) const {
  return sharding::keep_rows(model().shape(), comm().world_size(), rank);
}

std::vector<comm::Work> Fsdp::gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                     comm::Buffer full) {
  std::vector<comm::Work> works;
  works.push_back(comm().all_gather(unit.values, shard, full, tag(unit.unit->name)));
  return works;
}

std::vector<comm::Work> Fsdp::reduce(train::UnitGradients& unit, comm::ConstBuffer full,
                                     comm::Buffer shard, bool accumulate) {
  std::vector<comm::Work> works;
  works.push_back(comm().reduce_scatter(unit.layout, full, shard, comm::ReduceOp::kAverage,
                                        accumulate, tag(unit.unit->name)));
  return works;
}
// [/hooks]

void register_strategy(train::Registry& registry) {
  registry.add({"fsdp", "rows of every tensor on every rank; all-gather and reduce-scatter",
                train::AccumulationOrder::kRanksFirst, sharding::FormulaKind::kFsdp,
                [] { return std::make_unique<Fsdp>(); }});
}

}  // namespace shardbench::fsdp
