#include "common/train/whole_weights.h"

#include <ATen/ATen.h>

#include <cstring>

#include "common/memory/category.h"

namespace shardbench::train {

void WholeWeights::allocate(const Model& model, comm::Communicator* peers) {
  layout_ = sharding::flatten(model.shape(), sharding::keep_all(model.shape()));
  const memory::CategoryScope scope(memory::Category::kParam);
  if (peers == nullptr) {
    private_ = at::zeros({layout_.extent}, at::kFloat);
    data_ = private_.data_ptr<float>();
    return;
  }
  shared_ = peers->symmetric_empty(static_cast<std::size_t>(layout_.extent) * sizeof(float));
  data_ = static_cast<float*>(shared_.data());
  if (shared_.bytes() > 0) std::memset(data_, 0, shared_.bytes());
}

void WholeWeights::bind(const Model& model) {
  for (Parameter* p : model.parameters()) p->bind(of(p->index()));
}

float* WholeWeights::of(int parameter) const {
  const sharding::Piece* piece = layout_.piece_of(parameter);
  return data_ + (piece == nullptr ? 0 : piece->offset);  // one without elements lies anywhere
}

}  // namespace shardbench::train
