#include "common/train/single.h"

namespace shardbench::train {

void register_single(Registry& registry) {
  registry.add({"single", "one process without communication (the reference; --world 1)",
                AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kSingle,
                [] { return std::make_unique<Single>(); }});
}

}  // namespace shardbench::train
