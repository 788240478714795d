#include "common/train/replicated.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "common/memory/category.h"

namespace shardbench::train {

void ReplicatedStrategy::allocate() {
  const sharding::ModelShape& shape = model().shape();
  layout_ = sharding::flatten(shape, sharding::keep_all(shape));
  {
    memory::CategoryScope scope(memory::Category::kParam);
    values_ = at::zeros({layout_.extent}, at::kFloat);
  }
  auto* values = values_.data_ptr<float>();
  initialize_pieces(model(), layout_.groups, seed(), values);
  for (Parameter* p : model().parameters()) {
    const sharding::Piece* piece = layout_.piece_of(p->index());
    p->bind(values + (piece == nullptr ? 0 : piece->offset));
  }

  buckets_ = sharding::plan_buckets(shape, options().bucket_cap_mib, options().first_bucket_mib);
  gradient_offset_.assign(shape.parameters.size(), -1);
  for (const sharding::Bucket& bucket : buckets_) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      gradient_offset_[bucket.parameters[i]] = bucket.begin + bucket.offsets[i];
    }
    gradient_extent_ = std::max(gradient_extent_, bucket.begin + bucket.extent);
  }
  {
    memory::CategoryScope scope(memory::Category::kGrad);
    gradients_ = comm().symmetric_empty(static_cast<std::size_t>(gradient_extent_) * sizeof(float));
    if (gradients_.bytes() > 0) std::memset(gradients_.data(), 0, gradients_.bytes());
  }
  auto* gradients = static_cast<float*>(gradients_.data());
  for (const sharding::FlatGroup& group : layout_.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      owned_.pieces.push_back({model().parameters()[piece.parameter], 0, piece.count,
                               values + piece.offset, gradients + gradient_offset_[piece.parameter],
                               piece.offset});
    }
  }
  owned_.state_extent = layout_.trainable_extent;
}

std::int64_t ReplicatedStrategy::padding_bytes() const {
  return 4 * (layout_.extent - layout_.elements) +
         4 * (gradient_extent_ - layout_.trainable_elements);
}

at::Tensor ReplicatedStrategy::gradient_view(Parameter& parameter) {
  float* data = static_cast<float*>(gradients_.data()) + gradient_offset_[parameter.index()];
  return at::from_blob(data, parameter.dims(), at::TensorOptions().dtype(at::kFloat));
}

void ReplicatedStrategy::reduce_the_rest() {
  for (const sharding::Bucket& bucket : buckets_) zero_unwritten(bucket);
}

comm::Buffer ReplicatedStrategy::gradient_memory() const {
  return {gradients_.data(), gradient_extent_, DType::kFloat32};
}

comm::Buffer ReplicatedStrategy::bucket_memory(const sharding::Bucket& bucket) const {
  return {static_cast<float*>(gradients_.data()) + bucket.begin, bucket.extent, DType::kFloat32};
}

void ReplicatedStrategy::zero_unwritten(const sharding::Bucket& bucket) {
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const Parameter& parameter = *model().parameters()[bucket.parameters[i]];
    if (parameter.gradient_started()) continue;
    std::fill_n(static_cast<float*>(gradients_.data()) + bucket.begin + bucket.offsets[i],
                parameter.numel(), 0.0f);
  }
}

}  // namespace shardbench::train
