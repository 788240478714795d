#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/sharding/flat.h"
#include "common/train/in_place_weights.h"
#include "common/train/prefetch_order.h"
#include "common/train/strategy.h"
#include "common/train/unit_reducer.h"

namespace shardbench::train {

/// One unit of a sharded strategy: its full weights while unsharded, in the dtype that operations
/// compute in. fp32 weights are gathered from every rank's shard. For another dtype a rank converts
/// its part into its place in the full weights first, where peers read it.
struct ShardedUnit {
  Unit* unit = nullptr;
  bool read_in_backward = true;              ///< if not, nothing is gathered for backward
  sharding::UnitBuffer buffer;               ///< where each parameter lies in the full weights
  std::vector<sharding::Segment> converted;  ///< this rank's shard -> full weights; none in fp32
  sharding::ShardLayout values;  ///< full weights <-> every rank's shard memory, or in place
  enum class State { kResharded, kUnderWay, kUnsharded } state = State::kResharded;
  at::Tensor memory;                ///< full weights in fp32
  comm::SymmetricMemory shared;     ///< full weights in another dtype
  std::vector<comm::Work> gathers;  ///< into the full weights; or out of them, by peers

  void* full() const { return memory.defined() ? memory.data_ptr() : shared.data(); }
};

/// What every strategy that shards parameters has in common: flat shard memory, units that are
/// unsharded and resharded around their use with prefetch, gradients reduced unit by unit. A
/// strategy says which elements each rank keeps and which messages unshard and reduce a unit.
class ShardedStrategy : public Strategy {
 public:
  const Owned& owned() const final { return owned_; }
  bool replicated() const final { return false; }
  std::int64_t padding_bytes() const final;
  void on_final_gradients(TakeGradients take) final {
    gradients_.on_final_gradients(std::move(take));
  }

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void gradient_ready(Parameter& parameter) override;
  void after_backward(Unit& unit) override;
  void end_of_backward() override;

 protected:
  /// The element range of every parameter that `rank` keeps.
  virtual std::vector<sharding::Range> kept_by(int rank) const = 0;
  /// Issues the messages that fill `full` from all ranks' shards (which may lie in it: see values).
  virtual std::vector<comm::Work> gather(ShardedUnit& unit, comm::ConstBuffer shard,
                                         comm::Buffer full) = 0;
  /// Issues the messages that average `full` over ranks into the owners' gradient shards.
  virtual std::vector<comm::Work> reduce(UnitGradients& unit, comm::ConstBuffer full,
                                         comm::Buffer shard, bool accumulate) = 0;

  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad) override;
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

  PrefetchOrder forward_order_;
  PrefetchOrder backward_order_;

 private:
  bool converts() const { return options().compute_dtype != DType::kFloat32; }
  /// Weights are read where their owners keep them: nothing is gathered.
  bool in_place() const { return options().collectives == CollectiveMode::kInPlace; }
  /// Makes what this rank has written into them visible to all.
  void publish_in_place();
  void allocate_values();
  void allocate_full(ShardedUnit& unit);

  std::vector<ShardedUnit> units_;
  sharding::FlatLayout layout_;   ///< of this rank's shards
  comm::SymmetricMemory values_;  ///< this rank's (master) weights: peers gather fp32 from them
  InPlaceWeights in_place_;       ///< in fp32 instead of values_, else made from them
  UnitReducer gradients_;
  Owned owned_;
};

}  // namespace shardbench::train
