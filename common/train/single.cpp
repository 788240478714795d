#include "common/train/single.h"

#include "common/train/replicated.h"

namespace shardbench::train {

void register_single(Registry& registry) {
  registry.add({"single", "one process without communication (the reference; --world 1)",
                AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kSingle,
                [] { return std::make_unique<ReplicatedStrategy>(); }});
}

}  // namespace shardbench::train
