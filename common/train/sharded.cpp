#include "common/train/sharded.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/train/conversion.h"

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
  if (sharded(unit).read_in_backward) start_unshard(sharded(unit));
  for (int next : backward_order_.enter(unit.index, options().backward_prefetch)) {
    if (units_[next].read_in_backward) start_unshard(units_[next]);
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

void ShardedStrategy::add_rows(Parameter& parameter, const at::Tensor& indices,
                               const at::Tensor& grad) {
  gradients_.add_rows(parameter, indices, grad);
}

void ShardedStrategy::allocate() {
  const sharding::ModelShape& shape = model().shape();
  std::vector<sharding::FlatLayout> by_rank;
  for (int rank = 0; rank < comm().world_size(); ++rank) {
    by_rank.push_back(sharding::flatten(shape, kept_by(rank)));
  }
  layout_ = by_rank[comm().rank()];
  allocate_values();

  const DType dtype = options().compute_dtype;
  for (const auto& unit : model().units()) {
    ShardedUnit& state = units_.emplace_back();
    state.unit = unit.get();
    sharding::UnitShape all{unit->name, 0, {}};
    for (const Parameter* p : unit->parameters) all.parameters.push_back(p->index());
    state.read_in_backward = sharding::is_read_in_backward(shape, all.parameters);
    state.buffer = sharding::unit_buffer(shape, all, dtype);
    state.values = sharding::unit_layout(shape, all, by_rank, /*trainable_only=*/false, dtype);
    if (!converts()) continue;
    state.converted = state.values.segments(comm().rank());
    state.values = state.values.in_place();
  }
  gradients_.allocate(model(), comm(), by_rank, options(),
                      [this](UnitGradients& unit, comm::ConstBuffer full, comm::Buffer shard,
                             bool accumulate) { return reduce(unit, full, shard, accumulate); });
  owned_ = gradients_.owned(model(), [this](const sharding::Piece& piece) {
    if (values_.data() == nullptr) {
      return static_cast<float*>(in_place_.of(piece.parameter)) + piece.begin;
    }
    return static_cast<float*>(values_.data()) + layout_.piece_of(piece.parameter)->offset;
  });
}

/// The weights that this rank keeps, with their initial values.
void ShardedStrategy::allocate_values() {
  if (in_place()) {
    in_place_.allocate(model(), comm(), kept_by(comm().rank()), options().compute_dtype);
  }
  if (in_place() && !converts()) {
    fill_initial_values(in_place_.own(), static_cast<float*>(in_place_.data()));
  } else {
    memory::CategoryScope scope(memory::Category::kParam);
    values_ = comm().symmetric_empty(bytes_of(layout_.extent));
    flat::zero(values_.data(), layout_.extent, DType::kFloat32, model().device());
    fill_initial_values(layout_, static_cast<float*>(values_.data()));
  }
  if (in_place()) publish_in_place();
}

void ShardedStrategy::publish_in_place() {
  if (converts()) in_place_.convert(layout_, static_cast<const float*>(values_.data()));
  in_place_.publish();
}

std::int64_t ShardedStrategy::padding_bytes() const {
  const std::int64_t weights = values_.data() == nullptr ? 0 : layout_.extent - layout_.elements;
  return 4 * weights + gradients_.padding_bytes();
}

void ShardedStrategy::allocate_full(ShardedUnit& unit) {
  const memory::CategoryScope scope(memory::Category::kGatheredParam);
  const DType dtype = options().compute_dtype;
  if (converts()) {
    unit.shared =
        comm().symmetric_empty(static_cast<std::size_t>(unit.buffer.extent) * size_of(dtype));
  } else {
    unit.memory = at::empty({unit.buffer.extent}, at::dtype(at::kFloat).device(model().device()));
  }
  zero_padding(unit.unit->parameters, unit.buffer, dtype, unit.full(), model().device());
}

void ShardedStrategy::start_unshard(ShardedUnit& unit) {
  if (unit.state != ShardedUnit::State::kResharded) return;
  unit.state = ShardedUnit::State::kUnderWay;
  if (in_place()) return;
  allocate_full(unit);
  const DType dtype = options().compute_dtype;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const auto* values = static_cast<const float*>(values_.data());
  for (const sharding::Segment& own : unit.converted) {
    convert_on_threads(
        {values + own.shard_offset, own.count, DType::kFloat32},
        {static_cast<std::byte*>(unit.full()) + own.full_offset * element, own.count, dtype},
        model().device());
  }
  const comm::Buffer full{unit.full(), unit.buffer.extent, dtype};
  const comm::ConstBuffer shard{values_.data(), layout_.extent, DType::kFloat32};
  unit.gathers = gather(unit, converts() ? comm::ConstBuffer(full) : shard, full);
  unit.state = ShardedUnit::State::kUnderWay;
}

void ShardedStrategy::finish_unshard(ShardedUnit& unit) {
  if (unit.state != ShardedUnit::State::kUnderWay) return;
  for (comm::Work& work : unit.gathers) work.wait();
  if (!converts()) unit.gathers.clear();
  unit.state = ShardedUnit::State::kUnsharded;
  const auto element = static_cast<std::int64_t>(size_of(options().compute_dtype));
  for (std::size_t i = 0; i < unit.buffer.offsets.size(); ++i) {
    Parameter& parameter = *unit.unit->parameters[i];
    parameter.bind(in_place()
                       ? in_place_.of(parameter.index())
                       : static_cast<std::byte*>(unit.full()) + unit.buffer.offsets[i] * element);
  }
}

void ShardedStrategy::reshard(ShardedUnit& unit) {
  // Of a prefetch that nobody used, too, the bytes must have arrived before the memory may go; and
  // those that peers take from it must have left.
  for (comm::Work& work : unit.gathers) work.wait();
  if (converts()) {
    for (comm::Work& work : unit.gathers) work.wait_released();
  }
  unit.gathers.clear();
  for (Parameter* parameter : unit.unit->parameters) parameter->unbind();
  unit.state = ShardedUnit::State::kResharded;
  unit.memory.reset();
  unit.shared = {};
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
  if (in_place()) publish_in_place();
}

}  // namespace shardbench::train
