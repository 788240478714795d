#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/optim/owned.h"
#include "common/sharding/flat.h"
#include "common/train/row_gradient.h"
#include "common/train/strategy.h"

namespace shardbench::train {

/// One unit's full gradients while they are being written and reduced, in the dtype in which they
/// travel. Other dtypes than fp32 are reduced in place, and this rank's part is widened from there.
struct UnitGradients {
  Unit* unit = nullptr;
  std::vector<Parameter*> trainable;  ///< its parameters that have (whole) gradients
  std::vector<Parameter*> looked_up;  ///< those whose gradients travel as rows
  std::vector<RowGradient> rows;      ///< theirs
  sharding::UnitBuffer buffer;        ///< where each trainable one lies in the full gradients
  sharding::ShardLayout layout;       ///< full gradients <-> every rank's shard memory, or in place
  std::vector<sharding::Segment> widened;  ///< full gradients -> this rank's shard; none in fp32
  comm::SymmetricMemory full;              ///< peers read it while they reduce
  std::vector<comm::Work> reductions;      ///< under way out of `full`
  bool has_inner = false;                  ///< other units are entered while this one is open
  bool entered = false;                    ///< by backward, and not reduced since
  bool reduced_before = false;             ///< in this step: further reductions add to the shard
  bool adds = false;                       ///< the one under way does
  // Only where gradients are handed over at once:
  std::vector<OwnedPiece> pieces;  ///< what this rank owns of the unit
  std::vector<std::int64_t> used;  ///< of each trainable parameter, on any rank when agreed
  comm::Work agreement;            ///< on `used`
};

/// Gradients of strategies that keep 1/W of them, in fp32: a unit's full gradients exist from their
/// first write until their reduction into the owners' shards has ended. Where they are handed over
/// at once (optimizer_in_backward) no shard is kept: they are reduced in place, after the unit's
/// backward has ended, and taken from there.
class UnitReducer {
 public:
  /// Issues the messages that average `full` over ranks into the owners' shards.
  using Reduce = std::function<std::vector<comm::Work>(UnitGradients& unit, comm::ConstBuffer full,
                                                       comm::Buffer shard, bool accumulate)>;
  /// `by_rank`: the flat memory of every rank's part. Only after the model has been cut into units.
  void allocate(const Model& model, comm::Communicator& comm,
                const std::vector<sharding::FlatLayout>& by_rank, const StrategyOptions& options,
                Reduce reduce);

  /// What this rank's optimizer steps; `value_of` says where the piece's weights lie.
  Owned owned(const Model& model, const std::function<float*(const sharding::Piece&)>& value_of);
  void on_final_gradients(Strategy::TakeGradients take) { take_ = std::move(take); }
  /// Alignment padding of the shard, bytes.
  std::int64_t padding_bytes() const;

  void start_step();
  /// Backward has entered the unit.
  void enter(const Unit& unit) { units_[unit.index].entered = true; }
  /// A view in which an op writes the parameter's gradient.
  at::Tensor view(const Parameter& parameter);
  /// Rows of the parameter's gradient, in place of that (see RowGradient::add).
  void add_rows(const Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad);
  /// An op has written the last due gradient of the parameter: reduces its unit if it is complete.
  /// A unit with others inside waits for reduce_if_complete: which of its parameters are used may
  /// differ between ranks, and its reduction must come at one place among the inner units' calls.
  void gradient_ready(const Parameter& parameter);
  /// Starts the unit's reduction once every use so far has written; unless `also_unwritten`, every
  /// parameter must have been used. Unwritten gradients count as zero.
  void reduce_if_complete(const Unit& unit, bool also_unwritten);
  /// Reduces what no reduction has taken yet and waits for all.
  void finish();

 private:
  /// Where the trainable parameter at `position` lies in the unit's full gradients.
  std::byte* full_gradient(UnitGradients& unit, std::size_t position);
  std::byte* full_data(const UnitGradients& unit, std::size_t position) const;
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  void start_reduce(UnitGradients& unit);
  void reduce_whole(UnitGradients& unit);
  void reduce_rows(UnitGradients& unit);
  void finish_reduce(UnitGradients& unit);
  void agree_on_use(UnitGradients& unit);
  void hand_over(UnitGradients& unit);
  bool in_place() const { return hands_over_ || dtype_ != DType::kFloat32; }

  comm::Communicator* comm_ = nullptr;
  at::Device device_ = at::kCPU;
  Reduce reduce_;
  DType dtype_ = DType::kFloat32;  ///< in which gradients travel
  bool hands_over_ = false;        ///< optimizer_in_backward
  Strategy::TakeGradients take_;
  std::vector<UnitGradients> units_;
  std::vector<int> position_;    ///< by parameter index: its place in trainable, or looked_up
  sharding::FlatLayout layout_;  ///< of this rank's shards
  at::Tensor shard_;             ///< this rank's averaged gradients; undefined where none are kept
  std::deque<int> reducing_;     ///< units whose full gradients are in flight, oldest first
};

/// The padding between pieces of a full buffer is never moved, so it is zeroed once per buffer.
void zero_padding(const std::vector<Parameter*>& parameters, const sharding::UnitBuffer& buffer,
                  DType dtype, void* full, at::Device device);

}  // namespace shardbench::train
