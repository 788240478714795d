#pragma once

#include <vector>

#include "common/train/registry.h"
#include "common/train/replicated.h"

namespace shardbench::ddp {

/// Distributed data parallel (Li et al. 2020): every rank keeps everything, gradients are averaged
/// by one all-reduce per bucket, started as soon as backward has filled it.
class Ddp : public train::ReplicatedStrategy {
 public:
  void gradient_ready(Parameter& parameter) override;

 protected:
  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void start_step() override;
  void reduce_the_rest() override;
  /// Issues the message that averages one bucket over ranks.
  virtual comm::Work reduce_bucket(int index);

 private:
  void reduce_next_bucket();

  std::vector<int> bucket_of_;  ///< by parameter index
  std::vector<int> missing_;    ///< by bucket: gradients not yet ready in the last micro-batch
  std::vector<char> ready_;     ///< by parameter index
  std::vector<comm::Work> reductions_;  ///< by bucket, in the order issued
};

/// Adds `ddp` to the registry.
void register_strategy(train::Registry& registry);

}  // namespace shardbench::ddp
