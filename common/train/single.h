#pragma once

#include "common/train/bucketed.h"
#include "common/train/registry.h"

namespace shardbench::train {

/// Training in one process, nothing is ever sent: what the strategies are compared with. Gradients
/// are rounded as if they travelled (StrategyOptions::reduce_dtype).
class Single : public BucketedStrategy {
 public:
  /// `order`: of the strategies whose rounding it has. Those that reduce every micro-batch have
  /// operations write gradients in the dtype in which they travel.
  explicit Single(AccumulationOrder order = AccumulationOrder::kMicroBatchesFirst)
      : order_(order) {}

  void gradient_ready(Parameter&) override {}  // several backward passes may add up as they like

 protected:
  std::vector<comm::Work> reduce_bucket(int) override { return {}; }
  at::Tensor gradient_view(Parameter& parameter) override;
  void reduce_the_rest() override;

 private:
  bool writes_narrow() const;

  AccumulationOrder order_;
  sharding::FlatLayout narrow_layout_;
  at::Tensor narrow_;  ///< gradients as they travel, where operations write them so
};

/// Adds `single`, the one-process strategy (W = 1 only), to the registry.
void register_single(Registry& registry);

}  // namespace shardbench::train
