#pragma once

#include <vector>

#include "common/train/bucketed.h"
#include "common/train/registry.h"

namespace shardbench::ddp {

/// Distributed data parallel (Li et al. 2020): every rank keeps everything, gradients are averaged
/// by one all-reduce per bucket, started as soon as backward has filled it.
class Ddp : public train::BucketedStrategy {
 protected:
  std::vector<comm::Work> reduce_bucket(int index) override;
};

/// Adds `ddp` to the registry.
void register_strategy(train::Registry& registry);

}  // namespace shardbench::ddp
