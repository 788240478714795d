#pragma once

#include "common/train/bucketed.h"
#include "common/train/registry.h"

namespace shardbench::train {

/// Training in one process, nothing is ever sent: what the strategies are compared with.
class Single : public BucketedStrategy {
 public:
  void gradient_ready(Parameter&) override {}  // several backward passes may add up as they like

 protected:
  std::vector<comm::Work> reduce_bucket(int) override { return {}; }
};

/// Adds `single`, the one-process strategy (W = 1 only), to the registry.
void register_single(Registry& registry);

}  // namespace shardbench::train
