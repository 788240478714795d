#include "common/train/sharded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "common/core/error.h"
#include "common/memory/category.h"

namespace shardbench::train {

namespace {

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
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
  gradients_.enter(unit);
  start_unshard(sharded(unit));
  for (int next : backward_order_.enter(unit.index, options().backward_prefetch)) {
    start_unshard(units_[next]);
  }
  finish_unshard(sharded(unit));
}

at::Tensor ShardedStrategy::gradient_view(Parameter& parameter) {
  return gradients_.view(parameter);
}

void ShardedStrategy::gradient_ready(Parameter& parameter) { gradients_.gradient_ready(parameter); }

void ShardedStrategy::after_backward(Unit& unit) {
  reshard(sharded(unit));
  gradients_.reduce_if_complete(unit, /*also_unwritten=*/true);
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
  auto* values = static_cast<float*>(values_.data());
  fill_initial_values(layout_, values);

  for (const auto& unit : model().units()) {
    ShardedUnit& state = units_.emplace_back();
    state.unit = unit.get();
    sharding::UnitShape all{unit->name, 0, {}};
    for (const Parameter* p : unit->parameters) all.parameters.push_back(p->index());
    state.buffer = sharding::unit_buffer(shape, all);
    state.values = sharding::unit_layout(shape, all, by_rank, /*trainable_only=*/false);
  }
  gradients_.allocate(model(), comm(), by_rank,
                      [this](UnitGradients& unit, comm::ConstBuffer full, comm::Buffer shard,
                             bool accumulate) { return reduce(unit, full, shard, accumulate); });
  owned_ = gradients_.owned(
      model(), [values](const sharding::Piece& piece) { return values + piece.offset; });
}

std::int64_t ShardedStrategy::padding_bytes() const {
  return 4 * (layout_.extent - layout_.elements) + gradients_.padding_bytes();
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

void ShardedStrategy::start_step() { gradients_.start_step(); }

void ShardedStrategy::reduce_the_rest() {
  gradients_.finish();
  for (ShardedUnit& unit : units_) reshard(unit);
}

void ShardedStrategy::values_changed() {
  // What was gathered before the step is stale.
  for (ShardedUnit& unit : units_) reshard(unit);
}

comm::ConstBuffer ShardedStrategy::value_shard() const {
  return {values_.data(), layout_.extent, DType::kFloat32};
}

}  // namespace shardbench::train
