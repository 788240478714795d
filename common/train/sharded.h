#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/sharding/flat.h"
#include "common/train/prefetch_order.h"
#include "common/train/strategy.h"

namespace shardbench::train {

/// One unit of a sharded strategy: its full weights while unsharded, its full gradients while they
/// are being written and reduced.
struct ShardedUnit {
  Unit* unit = nullptr;
  std::vector<Parameter*> trainable;     ///< its parameters that have gradients
  sharding::UnitBuffer buffer;           ///< where each parameter lies in the full weights
  sharding::UnitBuffer gradient_buffer;  ///< where each trainable one lies in the full gradients
  sharding::ShardLayout values;          ///< full weights <-> every rank's shard memory
  sharding::ShardLayout gradients;       ///< full gradients <-> every rank's shard memory
  at::Tensor full;                       ///< unsharded weights; undefined while resharded
  std::vector<comm::Work> gathers;       ///< under way into `full`
  comm::SymmetricMemory full_gradients;  ///< peers read it while they reduce
  std::vector<comm::Work> reductions;    ///< under way out of `full_gradients`
  bool entered = false;                  ///< by backward, and not reduced since
  bool reduced_before = false;           ///< in this step: further reductions add to the shard
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
  virtual std::vector<comm::Work> reduce(ShardedUnit& unit, comm::ConstBuffer full,
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
  /// Starts the reduction once every use so far has written; unwritten gradients count as zero.
  void reduce_if_complete(ShardedUnit& unit, bool also_unwritten);
  void start_reduce(ShardedUnit& unit);
  void finish_reduce(ShardedUnit& unit);
  /// Reduces what no reduction has taken yet and waits for all.
  void reduce_unfinished();

  comm::ConstBuffer value_shard() const;
  comm::Buffer gradient_shard();

  PrefetchOrder forward_order_;
  PrefetchOrder backward_order_;

 private:
  /// Where the trainable parameter at `position` lies in the unit's full gradients.
  float* full_gradient(ShardedUnit& unit, std::size_t position);

  std::vector<ShardedUnit> units_;
  std::vector<int> position_;     ///< by parameter index: its place among its unit's trainable ones
  sharding::FlatLayout layout_;   ///< of this rank's shards
  comm::SymmetricMemory values_;  ///< this rank's weights: peers read them while they gather
  at::Tensor gradients_;          ///< this rank's averaged gradients
  std::deque<int> reducing_;      ///< units whose full gradients are in flight, oldest first
  Owned owned_;
};

}  // namespace shardbench::train
