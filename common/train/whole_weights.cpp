#include "common/train/whole_weights.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/train/conversion.h"

namespace shardbench::train {

void WholeWeights::allocate(const Model& model, const Options& options, const Fill& fill) {
  const sharding::ModelShape& shape = model.shape();
  dtype_ = options.dtype;
  device_ = model.device();
  layout_ = sharding::flatten(shape, sharding::keep_all(shape), dtype_);
  allocate_memory(options.peers);
  if (dtype_ == DType::kFloat32) {
    fill(layout_, static_cast<float*>(data_));
  } else {
    convert_drawn(model, options.stepped, fill);
  }
  for (Parameter* p : model.parameters()) p->bind(of(p->index()));
}

/// Values are drawn in fp32: masters of what is stepped keep them, the weights are made from them.
void WholeWeights::convert_drawn(const Model& model, std::vector<sharding::Range> stepped,
                                 const Fill& fill) {
  const sharding::ModelShape& shape = model.shape();
  for (std::size_t p = 0; p < stepped.size(); ++p) {
    if (!shape.parameters[p].requires_grad) stepped[p] = {};
  }
  master_layout_ = sharding::flatten(shape, stepped);
  const sharding::FlatLayout drawn_layout = sharding::flatten(shape, sharding::keep_all(shape));
  const auto fp32 = at::dtype(at::kFloat).device(device_);
  const at::Tensor drawn = at::zeros({drawn_layout.extent}, fp32);
  float* const values = flat::address(drawn);
  fill(drawn_layout, values);
  const memory::CategoryScope scope(memory::Category::kParam);
  masters_ = at::zeros({master_layout_.extent}, fp32);
  for (const Parameter* p : model.parameters()) {
    const sharding::Piece* from = drawn_layout.piece_of(p->index());
    if (from == nullptr) continue;
    convert_on_threads({values + from->offset, from->count, DType::kFloat32},
                       {of(p->index()), from->count, dtype_}, device_);
    if (master_layout_.piece_of(p->index()) == nullptr) continue;
    flat::copy(this->stepped(p->index()), values + from->offset, from->count, device_);
  }
}

void WholeWeights::allocate_memory(comm::Communicator* peers) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype_)) * layout_.extent;
  const memory::CategoryScope scope(memory::Category::kParam);
  if (peers == nullptr) {
    private_ = at::zeros({bytes}, at::dtype(at::kByte).device(device_));
    data_ = private_.mutable_data_ptr();
    return;
  }
  shared_ = peers->symmetric_empty(static_cast<std::size_t>(bytes));
  data_ = shared_.data();
  flat::zero(data_, layout_.extent, dtype_, device_);
}

void WholeWeights::update() {
  for (const sharding::FlatGroup& group : master_layout_.groups) {
    for (const sharding::Piece& piece : group.pieces) {
      convert_on_threads({this->stepped(piece.parameter), piece.count, DType::kFloat32},
                         {of(piece.parameter), piece.count, dtype_}, device_);
    }
  }
}

void* WholeWeights::of(int parameter) const {
  const sharding::Piece* piece = layout_.piece_of(parameter);
  if (piece == nullptr) return data_;  // one without elements lies anywhere
  return static_cast<std::byte*>(data_) +
         piece->offset * static_cast<std::int64_t>(size_of(dtype_));
}

float* WholeWeights::stepped(int parameter) const {
  if (dtype_ == DType::kFloat32) return static_cast<float*>(of(parameter));
  return flat::address(masters_) + master_layout_.piece_of(parameter)->offset;
}

std::int64_t WholeWeights::padding_bytes() const {
  return static_cast<std::int64_t>(size_of(dtype_)) * (layout_.extent - layout_.elements) +
         4 * (master_layout_.extent - master_layout_.elements);
}

}  // namespace shardbench::train
