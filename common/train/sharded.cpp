#include "common/train/sharded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "common/core/error.h"
#include "common/memory/category.h"

namespace shardbench::train {

namespace {

/// Full gradients that may be in flight beside those being written: one, as FSDP2 does.
constexpr std::size_t kReductionsInFlight = 1;

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

/// Padding between pieces is never moved, so it is zeroed once per buffer.
void zero_padding(const std::vector<Parameter*>& parameters, const sharding::UnitBuffer& buffer,
                  float* full) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t end = buffer.offsets[i] + parameters[i]->numel();
    const std::int64_t next = i + 1 == parameters.size() ? buffer.extent : buffer.offsets[i + 1];
    std::fill(full + end, full + next, 0.0f);
  }
}

}  // namespace

// [hooks]
void ShardedStrategy::before_forward(Unit& unit) {
  enter(Phase::kForward, unit);
  start_unshard(sharded(unit));
  for (int next : forward_order_.enter(unit.index, options().forward_prefetch)) {
    start_unshard(units_[next]);
  }
  finish_unshard(sharded(unit));
}

void ShardedStrategy::after_forward(Unit& unit) {
  // Without gradients no backward will come to reshard a unit that is kept.
  if (reshards_after_forward(unit) || !at::GradMode::is_enabled()) reshard(sharded(unit));
}

void ShardedStrategy::before_backward(Unit& unit) {
  enter(Phase::kBackward, unit);
  sharded(unit).entered = true;
  start_unshard(sharded(unit));
  for (int next : backward_order_.enter(unit.index, options().backward_prefetch)) {
    start_unshard(units_[next]);
  }
  finish_unshard(sharded(unit));
}

at::Tensor ShardedStrategy::gradient_view(Parameter& parameter) {
  ShardedUnit& unit = sharded(*parameter.unit());
  float* data = full_gradient(unit, position_[parameter.index()]);
  return at::from_blob(data, parameter.dims(), at::TensorOptions().dtype(at::kFloat));
}

void ShardedStrategy::gradient_ready(Parameter& parameter) {
  reduce_if_complete(sharded(*parameter.unit()), /*also_unwritten=*/false);
}

void ShardedStrategy::after_backward(Unit& unit) {
  reshard(sharded(unit));
  reduce_if_complete(sharded(unit), /*also_unwritten=*/true);
}

void ShardedStrategy::end_of_backward() {
  for (ShardedUnit& unit : units_) reshard(unit);  // kept or prefetched, but not passed on the way
  forward_order_.restart();
  backward_order_.restart();
}
// [/hooks]

void ShardedStrategy::allocate() {
  const sharding::ModelShape& shape = model().shape();
  std::vector<sharding::FlatLayout> by_rank;
  for (int rank = 0; rank < comm().world_size(); ++rank) {
    by_rank.push_back(sharding::flatten(shape, kept_by(rank)));
  }
  layout_ = by_rank[comm().rank()];
  {
    memory::CategoryScope scope(memory::Category::kParam);
    values_ = comm().symmetric_empty(bytes_of(layout_.extent));
    if (values_.bytes() > 0) std::memset(values_.data(), 0, values_.bytes());
  }
  {
    memory::CategoryScope scope(memory::Category::kGrad);
    gradients_ = at::zeros({layout_.trainable_extent}, at::kFloat);
  }
  auto* values = static_cast<float*>(values_.data());
  initialize_pieces(model(), layout_.groups, seed(), values);

  position_.assign(shape.parameters.size(), 0);
  for (const auto& unit : model().units()) {
    ShardedUnit& state = units_.emplace_back();
    state.unit = unit.get();
    sharding::UnitShape all{unit->name, 0, {}};
    sharding::UnitShape trainable = all;
    for (Parameter* p : unit->parameters) {
      all.parameters.push_back(p->index());
      if (!p->requires_grad()) continue;
      position_[p->index()] = static_cast<int>(state.trainable.size());
      state.trainable.push_back(p);
      trainable.parameters.push_back(p->index());
    }
    state.buffer = sharding::unit_buffer(shape, all);
    state.gradient_buffer = sharding::unit_buffer(shape, trainable);
    state.values = sharding::unit_layout(shape, all, by_rank, /*trainable_only=*/false);
    state.gradients = sharding::unit_layout(shape, trainable, by_rank, /*trainable_only=*/true);
  }
  for (const sharding::FlatGroup& group : layout_.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      owned_.pieces.push_back({model().parameters()[piece.parameter], piece.begin, piece.count,
                               values + piece.offset, gradients_.data_ptr<float>() + piece.offset,
                               piece.offset});
    }
  }
  owned_.state_extent = layout_.trainable_extent;
}

std::int64_t ShardedStrategy::padding_bytes() const {
  return 4 * (layout_.extent - layout_.elements) +
         4 * (layout_.trainable_extent - layout_.trainable_elements);
}

void ShardedStrategy::start_unshard(ShardedUnit& unit) {
  if (unit.full.defined()) return;
  memory::CategoryScope scope(memory::Category::kGatheredParam);
  unit.full = at::empty({unit.buffer.extent}, at::kFloat);
  auto* full = unit.full.data_ptr<float>();
  zero_padding(unit.unit->parameters, unit.buffer, full);
  unit.gathers = gather(unit, value_shard(), {full, unit.buffer.extent, DType::kFloat32});
}

void ShardedStrategy::finish_unshard(ShardedUnit& unit) {
  for (comm::Work& work : unit.gathers) work.wait();
  unit.gathers.clear();
  auto* full = unit.full.data_ptr<float>();
  for (std::size_t i = 0; i < unit.buffer.offsets.size(); ++i) {
    Parameter& parameter = *unit.unit->parameters[i];
    if (!parameter.bound()) parameter.bind(full + unit.buffer.offsets[i]);
  }
}

void ShardedStrategy::reshard(ShardedUnit& unit) {
  // A prefetch that nobody used: its bytes must have arrived before the memory may go.
  for (comm::Work& work : unit.gathers) work.wait();
  unit.gathers.clear();
  for (Parameter* parameter : unit.unit->parameters) parameter->unbind();
  unit.full.reset();
}

bool ShardedStrategy::reshards_after_forward(const Unit& unit) const {
  switch (options().reshard_after_forward) {
    case Reshard::kTrue:
      return true;
    case Reshard::kFalse:
      return false;
    case Reshard::kAuto:
      return !unit.is_root;
  }
  return true;
}

float* ShardedStrategy::full_gradient(ShardedUnit& unit, std::size_t position) {
  if (!unit.reductions.empty()) finish_reduce(unit);
  if (unit.full_gradients.data() == nullptr) {
    memory::CategoryScope scope(memory::Category::kUnshardedGrad);
    unit.full_gradients = comm().symmetric_empty(bytes_of(unit.gradient_buffer.extent));
    zero_padding(unit.trainable, unit.gradient_buffer,
                 static_cast<float*>(unit.full_gradients.data()));
  }
  return static_cast<float*>(unit.full_gradients.data()) + unit.gradient_buffer.offsets[position];
}

void ShardedStrategy::reduce_if_complete(ShardedUnit& unit, bool also_unwritten) {
  bool any_written = false;
  for (const Parameter* p : unit.trainable) {
    if (p->pending_uses() > 0) return;
    if (!p->gradient_started() && !also_unwritten) return;
    any_written = any_written || p->gradient_started();
  }
  // A unit that backward has entered is reduced even if this rank wrote nothing: others may have.
  if (any_written || (unit.entered && !unit.trainable.empty())) start_reduce(unit);
}

void ShardedStrategy::start_reduce(ShardedUnit& unit) {
  for (std::size_t i = 0; i < unit.trainable.size(); ++i) {
    Parameter& parameter = *unit.trainable[i];
    if (!parameter.gradient_started()) {
      std::fill_n(full_gradient(unit, i), parameter.numel(), 0.0f);
    }
    parameter.reset_gradient();
  }
  const comm::ConstBuffer full{unit.full_gradients.data(), unit.gradient_buffer.extent,
                               DType::kFloat32};
  unit.reductions = reduce(unit, full, gradient_shard(), unit.reduced_before);
  unit.reduced_before = true;
  unit.entered = false;
  reducing_.push_back(unit.unit->index);
  while (reducing_.size() > kReductionsInFlight) finish_reduce(units_[reducing_.front()]);
}

void ShardedStrategy::finish_reduce(ShardedUnit& unit) {
  for (comm::Work& work : unit.reductions) work.wait();
  for (comm::Work& work : unit.reductions) work.wait_released();
  unit.reductions.clear();
  unit.full_gradients = {};
  std::erase(reducing_, unit.unit->index);
}

void ShardedStrategy::start_step() {
  for (ShardedUnit& unit : units_) unit.reduced_before = unit.entered = false;
}

void ShardedStrategy::reduce_unfinished() {
  for (ShardedUnit& unit : units_) {
    for (Parameter* p : unit.unit->parameters) p->forget_uses();
    reduce_if_complete(unit, /*also_unwritten=*/true);
  }
  while (!reducing_.empty()) finish_reduce(units_[reducing_.front()]);
}

void ShardedStrategy::reduce_the_rest() {
  reduce_unfinished();
  for (ShardedUnit& unit : units_) reshard(unit);
}

void ShardedStrategy::values_changed() {
  // What was gathered before the step is stale.
  for (ShardedUnit& unit : units_) reshard(unit);
}

comm::ConstBuffer ShardedStrategy::value_shard() const {
  return {values_.data(), layout_.extent, DType::kFloat32};
}

comm::Buffer ShardedStrategy::gradient_shard() {
  return {gradients_.data_ptr<float>(), layout_.trainable_extent, DType::kFloat32};
}

}  // namespace shardbench::train
