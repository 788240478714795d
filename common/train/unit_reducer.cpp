#include "common/train/unit_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "common/memory/category.h"
#include "common/modules/unit.h"

namespace shardbench::train {

namespace {

/// Full gradients that may be in flight beside those being written: one, as FSDP2 does.
constexpr std::size_t kReductionsInFlight = 1;

bool lies_inside(const Unit& inner, const Unit& outer) {
  if (inner.anchor == outer.anchor) return false;
  const std::string& path = outer.anchor->path();
  return path.empty() || inner.anchor->path().starts_with(path + ".");
}

}  // namespace

void zero_padding(const std::vector<Parameter*>& parameters, const sharding::UnitBuffer& buffer,
                  float* full) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t end = buffer.offsets[i] + parameters[i]->numel();
    const std::int64_t next = i + 1 == parameters.size() ? buffer.extent : buffer.offsets[i + 1];
    std::fill(full + end, full + next, 0.0f);
  }
}

void UnitReducer::allocate(const Model& model, comm::Communicator& comm,
                           const std::vector<sharding::FlatLayout>& by_rank, Reduce reduce) {
  comm_ = &comm;
  reduce_ = std::move(reduce);
  layout_ = by_rank[comm.rank()];
  {
    const memory::CategoryScope scope(memory::Category::kGrad);
    shard_ = at::zeros({layout_.trainable_extent}, at::kFloat);
  }
  const sharding::ModelShape& shape = model.shape();
  position_.assign(shape.parameters.size(), 0);
  for (const auto& unit : model.units()) {
    UnitGradients& state = units_.emplace_back();
    state.unit = unit.get();
    for (const auto& other : model.units()) {
      state.has_inner = state.has_inner || lies_inside(*other, *unit);
    }
    sharding::UnitShape trainable{unit->name, 0, {}};
    for (Parameter* p : unit->parameters) {
      if (!p->requires_grad()) continue;
      position_[p->index()] = static_cast<int>(state.trainable.size());
      state.trainable.push_back(p);
      trainable.parameters.push_back(p->index());
    }
    state.buffer = sharding::unit_buffer(shape, trainable);
    state.layout = sharding::unit_layout(shape, trainable, by_rank, /*trainable_only=*/true);
  }
}

Owned UnitReducer::owned(const Model& model,
                         const std::function<float*(const sharding::Piece&)>& value_of) const {
  Owned owned;
  for (const sharding::FlatGroup& group : layout_.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      owned.pieces.push_back({model.parameters()[piece.parameter], piece.begin, piece.count,
                              value_of(piece), shard_.data_ptr<float>() + piece.offset,
                              piece.offset});
    }
  }
  owned.state_extent = layout_.trainable_extent;
  return owned;
}

std::int64_t UnitReducer::padding_bytes() const {
  return 4 * (layout_.trainable_extent - layout_.trainable_elements);
}

void UnitReducer::start_step() {
  for (UnitGradients& unit : units_) unit.reduced_before = unit.entered = false;
}

at::Tensor UnitReducer::view(const Parameter& parameter) {
  float* data = full_gradient(units_[parameter.unit()->index], position_[parameter.index()]);
  return at::from_blob(data, parameter.dims(), at::TensorOptions().dtype(at::kFloat));
}

float* UnitReducer::full_gradient(UnitGradients& unit, std::size_t position) {
  if (!unit.reductions.empty()) finish_reduce(unit);
  if (unit.full.data() == nullptr) {
    const memory::CategoryScope scope(memory::Category::kUnshardedGrad);
    unit.full =
        comm_->symmetric_empty(static_cast<std::size_t>(unit.buffer.extent) * sizeof(float));
    zero_padding(unit.trainable, unit.buffer, static_cast<float*>(unit.full.data()));
  }
  return static_cast<float*>(unit.full.data()) + unit.buffer.offsets[position];
}

void UnitReducer::gradient_ready(const Parameter& parameter) {
  const Unit& unit = *parameter.unit();
  if (!units_[unit.index].has_inner) reduce_if_complete(unit, /*also_unwritten=*/false);
}

void UnitReducer::reduce_if_complete(const Unit& entered, bool also_unwritten) {
  UnitGradients& unit = units_[entered.index];
  bool any_written = false;
  for (const Parameter* p : unit.trainable) {
    if (p->pending_uses() > 0) return;
    if (!p->gradient_started() && !also_unwritten) return;
    any_written = any_written || p->gradient_started();
  }
  // A unit that backward has entered is reduced even if this rank wrote nothing: others may have.
  if (any_written || (unit.entered && !unit.trainable.empty())) start_reduce(unit);
}

void UnitReducer::start_reduce(UnitGradients& unit) {
  for (std::size_t i = 0; i < unit.trainable.size(); ++i) {
    Parameter& parameter = *unit.trainable[i];
    if (!parameter.gradient_started()) {
      std::fill_n(full_gradient(unit, i), parameter.numel(), 0.0f);
    }
    parameter.reset_gradient();
  }
  const comm::ConstBuffer full{unit.full.data(), unit.buffer.extent, DType::kFloat32};
  const comm::Buffer shard{shard_.data_ptr<float>(), layout_.trainable_extent, DType::kFloat32};
  unit.reductions = reduce_(unit, full, shard, unit.reduced_before);
  unit.reduced_before = true;
  unit.entered = false;
  reducing_.push_back(unit.unit->index);
  while (reducing_.size() > kReductionsInFlight) finish_reduce(units_[reducing_.front()]);
}

void UnitReducer::finish_reduce(UnitGradients& unit) {
  for (comm::Work& work : unit.reductions) work.wait();
  for (comm::Work& work : unit.reductions) work.wait_released();
  unit.reductions.clear();
  unit.full = {};
  std::erase(reducing_, unit.unit->index);
}

void UnitReducer::finish() {
  for (const UnitGradients& unit : units_) {
    for (Parameter* p : unit.unit->parameters) p->forget_uses();
    reduce_if_complete(*unit.unit, /*also_unwritten=*/true);
  }
  while (!reducing_.empty()) finish_reduce(units_[reducing_.front()]);
}

}  // namespace shardbench::train
