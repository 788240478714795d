#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/sharding/flat.h"
#include "common/train/prefetch_order.h"
#include "common/train/strategy.h"
#include "common/train/unit_reducer.h"

namespace shardbench::train {

/// One unit of a sharded strategy: its full weights while unsharded.
struct ShardedUnit {
  Unit* unit = nullptr;
  sharding::UnitBuffer buffer;      ///< where each parameter lies in the full weights
  sharding::ShardLayout values;     ///< full weights <-> every rank's shard memory
  at::Tensor full;                  ///< unsharded weights; undefined while resharded
  std::vector<comm::Work> gathers;  ///< under way into `full`
};

/// What every strategy that shards parameters has in common: flat shard memory, units that are
/// unsharded and resharded around their use with prefetch, gradients reduced unit by unit. A
/// strategy says which elements each rank keeps and which messages unshard and reduce a unit.
class ShardedStrategy : public Strategy {
 public:
  const Owned& owned() const final { return owned_; }
  bool replicated() const final { return false; }
  std::int64_t padding_bytes() const final;

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void gradient_ready(Parameter& parameter) override;
  void after_backward(Unit& unit) override;
  void end_of_backward() override;

 protected:
  /// The element range of every parameter that `rank` keeps.
  virtual std::vector<sharding::Range> kept_by(int rank) const = 0;
  /// Issues the messages that fill `full` from all ranks' shards.
  virtual std::vector<comm::Work> gather(ShardedUnit& unit, comm::ConstBuffer shard,
                                         comm::Buffer full) = 0;
  /// Issues the messages that average `full` over ranks into the owners' gradient shards.
  virtual std::vector<comm::Work> reduce(UnitGradients& unit, comm::ConstBuffer full,
                                         comm::Buffer shard, bool accumulate) = 0;

  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void start_step() override;
  void reduce_the_rest() override;
  void values_changed() override;

  // ---- building blocks of the hooks ----
  ShardedUnit& sharded(const Unit& unit) { return units_[unit.index]; }
  /// Starts filling the unit's full weights unless they are there or on their way.
  void start_unshard(ShardedUnit& unit);
  /// Waits for them and makes the unit's parameters usable.
  void finish_unshard(ShardedUnit& unit);
  void reshard(ShardedUnit& unit);
  bool reshards_after_forward(const Unit& unit) const;
  UnitReducer& gradients() { return gradients_; }
  comm::ConstBuffer value_shard() const;

  PrefetchOrder forward_order_;
  PrefetchOrder backward_order_;

 private:
  std::vector<ShardedUnit> units_;
  sharding::FlatLayout layout_;   ///< of this rank's shards
  comm::SymmetricMemory values_;  ///< this rank's weights: peers read them while they gather
  UnitReducer gradients_;
  Owned owned_;
};

}  // namespace shardbench::train
