#pragma once

#include <vector>

#include "common/train/bucketed.h"
#include "common/train/registry.h"
#include "common/train/sharded.h"
#include "common/train/unit_reducer.h"
#include "common/train/whole_weights.h"

namespace shardbench::zero3 {

/// ZeRO stage 1 (Rajbhandari et al. 2020): weights and gradients whole on every rank, optimizer
/// state at the tensor's owner. Buckets are averaged by a reduce to each owner; after the optimizer
/// the owners broadcast their tensors.
class Zero1 : public train::BucketedStrategy {
 public:
  bool replicated() const override { return false; }

 protected:
  void allocate() override;
  bool owns(int parameter) const override;
  std::vector<comm::Work> reduce_bucket(int index) override;
  void values_changed() override;

 private:
  std::vector<int> owner_;                           ///< by parameter index
  std::vector<sharding::ShardLayout> bucket_parts_;  ///< by bucket: who owns what of it
  sharding::ShardLayout weight_parts_;               ///< trainable tensors by owner
};

/// ZeRO stage 2: as stage 1, but a gradient stays at its owner only. A unit's gradients are reduced
/// as soon as backward has written them, in every micro-batch, and freed.
class Zero2 : public train::Strategy {
 public:
  const Owned& owned() const final { return owned_; }
  bool replicated() const final { return false; }
  std::int64_t padding_bytes() const final;
  void on_final_gradients(TakeGradients take) final {
    gradients_.on_final_gradients(std::move(take));
  }

  void before_forward(Unit& unit) override;
  void after_forward(Unit&) override {}
  void before_backward(Unit& unit) override;
  void gradient_ready(Parameter& parameter) override;
  void after_backward(Unit& unit) override;
  void end_of_backward() override {}

 protected:
  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad) override;
  void start_step() override;
  void reduce_the_rest() override;
  void values_changed() override;

 private:
  train::WholeWeights weights_;
  train::UnitReducer gradients_;
  sharding::ShardLayout weight_parts_;  ///< trainable tensors by owner
  Owned owned_;
};

/// ZeRO stage 3 with whole tensors at owner ranks: a unit is unsharded by a broadcast from each
/// owner and its gradients are averaged by a reduce to each owner.
class Zero3 : public train::ShardedStrategy {
 protected:
  void allocate() override;
  std::vector<sharding::Range> kept_by(int rank) const override;
  std::vector<comm::Work> gather(train::ShardedUnit& unit, comm::ConstBuffer shard,
                                 comm::Buffer full) override;
  std::vector<comm::Work> reduce(train::UnitGradients& unit, comm::ConstBuffer full,
                                 comm::Buffer shard, bool accumulate) override;

 private:
  std::vector<int> owner_;  ///< by parameter index
};

/// Add `zero1`, `zero2` and `zero3` to the registry.
void register_zero1(train::Registry& registry);
void register_zero2(train::Registry& registry);
void register_strategy(train::Registry& registry);

}  // namespace shardbench::zero3
