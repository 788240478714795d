#include "common/train/unit_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"
#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/modules/unit.h"
#include "common/train/conversion.h"

namespace shardbench::train {

namespace {

/// Full gradients that may be in flight beside those being written: one, as FSDP2 does.
constexpr std::size_t kReductionsInFlight = 1;

/// Elements of fp32 up to the next piece, which starts on 64 bytes.
std::int64_t padded(std::int64_t elements) {
  constexpr std::int64_t kMultiple = sharding::kPieceAlignment / 4;
  return (elements + kMultiple - 1) / kMultiple * kMultiple;
}

bool lies_inside(const Unit& inner, const Unit& outer) {
  if (inner.anchor == outer.anchor) return false;
  const std::string& path = outer.anchor->path();
  return path.empty() || inner.anchor->path().starts_with(path + ".");
}

}  // namespace

void zero_padding(const std::vector<Parameter*>& parameters, const sharding::UnitBuffer& buffer,
                  DType dtype, void* full, at::Device device) {
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t end = buffer.offsets[i] + parameters[i]->numel();
    const std::int64_t next = i + 1 == parameters.size() ? buffer.extent : buffer.offsets[i + 1];
    if (end == next) continue;
    flat::zero(static_cast<std::byte*>(full) + end * element, next - end, dtype, device);
  }
}

void UnitReducer::allocate(const Model& model, comm::Communicator& comm,
                           const std::vector<sharding::FlatLayout>& by_rank,
                           const StrategyOptions& options, Reduce reduce) {
  comm_ = &comm;
  device_ = model.device();
  dtype_ = options.reduce_dtype;
  hands_over_ = options.optimizer_in_backward;
  reduce_ = std::move(reduce);
  layout_ = by_rank[comm.rank()];
  if (!hands_over_) {
    const memory::CategoryScope scope(memory::Category::kGrad);
    shard_ = at::zeros({layout_.trainable_extent}, at::dtype(at::kFloat).device(device_));
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
      if (options.sparse_embedding && shape.parameters[p->index()].has_row_gradient()) {
        position_[p->index()] = static_cast<int>(state.looked_up.size());
        state.looked_up.push_back(p);
        state.rows.emplace_back(*p, comm);
        continue;
      }
      position_[p->index()] = static_cast<int>(state.trainable.size());
      state.trainable.push_back(p);
      trainable.parameters.push_back(p->index());
    }
    state.buffer = sharding::unit_buffer(shape, trainable, dtype_);
    state.layout =
        sharding::unit_layout(shape, trainable, by_rank, /*trainable_only=*/true, dtype_);
    if (!in_place()) continue;
    state.widened = state.layout.segments(comm.rank());
    state.layout = state.layout.in_place();
  }
}

Owned UnitReducer::owned(const Model& model,
                         const std::function<float*(const sharding::Piece&)>& value_of) {
  Owned owned;
  for (const sharding::FlatGroup& group : layout_.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      Parameter* parameter = model.parameters()[piece.parameter];
      float* gradient = hands_over_ ? nullptr : flat::address(shard_) + piece.offset;
      owned.pieces.push_back(
          {parameter, piece.begin, piece.count, value_of(piece), gradient, piece.offset});
      if (hands_over_) units_[parameter->unit()->index].pieces.push_back(owned.pieces.back());
    }
  }
  owned.state_extent = layout_.trainable_extent;
  return owned;
}

std::int64_t UnitReducer::padding_bytes() const {
  if (hands_over_) return 0;
  return 4 * (layout_.trainable_extent - layout_.trainable_elements);
}

void UnitReducer::start_step() {
  for (UnitGradients& unit : units_) {
    unit.reduced_before = unit.entered = false;
    for (RowGradient& rows : unit.rows) rows.clear();
  }
}

at::Tensor UnitReducer::view(const Parameter& parameter) {
  std::byte* data = full_gradient(units_[parameter.unit()->index], position_[parameter.index()]);
  return flat::view(data, parameter.dims(), dtype_, device_);
}

void UnitReducer::add_rows(const Parameter& parameter, const at::Tensor& indices,
                           const at::Tensor& grad) {
  units_[parameter.unit()->index].rows[position_[parameter.index()]].add(indices, grad);
}

std::byte* UnitReducer::full_gradient(UnitGradients& unit, std::size_t position) {
  if (!unit.reductions.empty()) finish_reduce(unit);
  if (unit.full.data() == nullptr) {
    const memory::CategoryScope scope(memory::Category::kUnshardedGrad);
    unit.full = comm_->symmetric_empty(static_cast<std::size_t>(unit.buffer.extent * element()));
    zero_padding(unit.trainable, unit.buffer, dtype_, unit.full.data(), device_);
  }
  return full_data(unit, position);
}

std::byte* UnitReducer::full_data(const UnitGradients& unit, std::size_t position) const {
  return static_cast<std::byte*>(unit.full.data()) + unit.buffer.offsets[position] * element();
}

void UnitReducer::gradient_ready(const Parameter& parameter) {
  const Unit& unit = *parameter.unit();
  // Handed over, its weights change: not before everything that reads them is through.
  if (hands_over_ || units_[unit.index].has_inner) return;
  reduce_if_complete(unit, /*also_unwritten=*/false);
}

void UnitReducer::reduce_if_complete(const Unit& entered, bool also_unwritten) {
  UnitGradients& unit = units_[entered.index];
  bool any_written = false;
  for (const std::vector<Parameter*>* parameters : {&unit.trainable, &unit.looked_up}) {
    for (const Parameter* p : *parameters) {
      if (p->pending_uses() > 0) return;
      if (!p->gradient_started() && !also_unwritten) return;
      any_written = any_written || p->gradient_started();
    }
  }
  const bool any = !unit.trainable.empty() || !unit.looked_up.empty();
  // A unit that backward has entered is reduced even if this rank wrote nothing: others may have.
  if (any_written || (unit.entered && any)) start_reduce(unit);
}

/// Asks all ranks which of the unit's parameters any of them has used.
void UnitReducer::agree_on_use(UnitGradients& unit) {
  SHARDBENCH_CHECK(!unit.reduced_before,
                   "unit {} has gradients again after they were handed to the optimizer in this "
                   "step: call backward once per step, or leave optimizer_in_backward off",
                   unit.unit->name);
  unit.used.clear();
  for (const Parameter* p : unit.trainable) unit.used.push_back(p->gradient_started() ? 1 : 0);
  unit.agreement = comm_->all_reduce(
      {unit.used.data(), static_cast<std::int64_t>(unit.used.size()), DType::kInt64},
      comm::ReduceOp::kMax, {"used in " + unit.unit->name, Phase::kMetrics});
}

void UnitReducer::start_reduce(UnitGradients& unit) {
  if (hands_over_) agree_on_use(unit);
  unit.adds = unit.reduced_before;
  if (!unit.trainable.empty()) reduce_whole(unit);
  reduce_rows(unit);
  unit.reduced_before = true;
  unit.entered = false;
}

void UnitReducer::reduce_rows(UnitGradients& unit) {
  for (std::size_t i = 0; i < unit.looked_up.size(); ++i) {
    Parameter& table = *unit.looked_up[i];
    table.reset_gradient();
    const sharding::Piece* own = layout_.piece_of(table.index());
    const sharding::Range range =
        own == nullptr ? sharding::Range{} : sharding::Range{own->begin, own->begin + own->count};
    float* to = own == nullptr ? nullptr : shard_.data_ptr<float>() + own->offset;
    unit.rows[i].reduce(range, to, unit.adds, {"rows of " + table.name(), Phase::kBackward});
  }
}

void UnitReducer::reduce_whole(UnitGradients& unit) {
  for (std::size_t i = 0; i < unit.trainable.size(); ++i) {
    Parameter& parameter = *unit.trainable[i];
    if (!parameter.gradient_started()) {
      flat::zero(full_gradient(unit, i), parameter.numel(), dtype_, device_);
    }
    parameter.reset_gradient();
  }
  const comm::Buffer full{unit.full.data(), unit.buffer.extent, dtype_};
  if (in_place()) {
    unit.reductions = reduce_(unit, full, full, /*accumulate=*/false);
  } else {
    const comm::Buffer shard{flat::address(shard_), layout_.trainable_extent, DType::kFloat32};
    unit.reductions = reduce_(unit, full, shard, unit.adds);
  }
  reducing_.push_back(unit.unit->index);
  while (reducing_.size() > kReductionsInFlight) finish_reduce(units_[reducing_.front()]);
}

void UnitReducer::finish_reduce(UnitGradients& unit) {
  for (comm::Work& work : unit.reductions) work.wait();
  if (hands_over_) {
    hand_over(unit);
  } else {
    for (const sharding::Segment& own : unit.widened) {
      const auto* from =
          static_cast<const std::byte*>(unit.full.data()) + own.full_offset * element();
      widen_on_threads({from, own.count, dtype_}, flat::address(shard_) + own.shard_offset,
                       unit.adds, device_);
    }
  }
  for (comm::Work& work : unit.reductions) work.wait_released();
  unit.reductions.clear();
  unit.full = {};
  std::erase(reducing_, unit.unit->index);
}

/// Gives what this rank owns of the unit's averaged gradients to whoever steps it.
void UnitReducer::hand_over(UnitGradients& unit) {
  unit.agreement.wait();
  unit.agreement.wait_released();
  std::vector<char> used(position_.size(), 0);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < unit.trainable.size(); ++i) {
    used[unit.trainable[i]->index()] = unit.used[i] != 0;
  }
  for (const OwnedPiece& piece : unit.pieces) elements += padded(piece.count);
  at::Tensor wide;
  if (dtype_ != DType::kFloat32) {
    const memory::CategoryScope scope(memory::Category::kCommBuffer);
    wide = at::empty({elements}, at::dtype(at::kFloat).device(device_));
  }
  std::int64_t next = 0;
  for (OwnedPiece& piece : unit.pieces) {
    std::byte* data =
        full_data(unit, position_[piece.parameter->index()]) + piece.begin * element();
    if (wide.defined()) {
      piece.gradient = flat::address(wide) + next;
      widen_on_threads({data, piece.count, dtype_}, piece.gradient, /*add=*/false, device_);
      next += padded(piece.count);
    } else {
      piece.gradient = reinterpret_cast<float*>(data);
    }
  }
  take_(unit.pieces, used);
}

void UnitReducer::finish() {
  for (const UnitGradients& unit : units_) {
    for (Parameter* p : unit.unit->parameters) p->forget_uses();
    reduce_if_complete(*unit.unit, /*also_unwritten=*/true);
  }
  while (!reducing_.empty()) finish_reduce(units_[reducing_.front()]);
}

}  // namespace shardbench::train
