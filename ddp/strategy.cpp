#include "ddp/strategy.h"

#include <fmt/format.h>

namespace shardbench::ddp {

// [hooks]
std::vector<comm::Work> Ddp::reduce_bucket(int index) {
  std::vector<comm::Work> works;
  works.push_back(comm().all_reduce(bucket_memory(index), comm::ReduceOp::kAverage,
                                    tag(fmt::format("bucket {}", index))));
  return works;
}
// [/hooks]

void register_strategy(train::Registry& registry) {
  registry.add({"ddp", "everything on every rank; gradients averaged by all-reduce of buckets",
                train::AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kDdp,
                [] { return std::make_unique<Ddp>(); }});
}

}  // namespace shardbench::ddp
