#include "common/train/bucketed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/core/error.h"
#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/train/conversion.h"

namespace shardbench::train {

namespace {

/// Narrowed buckets that may be in flight beside the one being narrowed.
constexpr std::size_t kNarrowInFlight = 1;

}  // namespace

bool BucketedStrategy::owns(int) const { return true; }

void BucketedStrategy::allocate() {
  const sharding::ModelShape& shape = model().shape();
  std::vector<sharding::Range> kept = sharding::keep_all(shape);
  for (std::size_t p = 0; p < kept.size(); ++p) {
    if (!owns(static_cast<int>(p))) kept[p] = {};
  }
  weights_.allocate(
      model(), {options().compute_dtype, kept, replicated() ? nullptr : &comm()},
      [this](const sharding::FlatLayout& layout, float* to) { fill_initial_values(layout, to); });
  allocate_gradients();

  auto* gradients = static_cast<float*>(gradients_.data());
  const sharding::FlatLayout state = sharding::flatten(shape, kept);
  for (const sharding::FlatGroup& group : state.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      owned_.pieces.push_back({model().parameters()[piece.parameter], 0, piece.count,
                               weights_.stepped(piece.parameter),
                               gradients + gradient_offset_[piece.parameter], piece.offset});
    }
  }
  owned_.state_extent = state.trainable_extent;
}

void BucketedStrategy::allocate_gradients() {
  const sharding::ModelShape& shape = model().shape();
  buckets_ = sharding::plan_buckets(shape, options().bucket_cap_mib, options().first_bucket_mib,
                                    options().sparse_embedding);
  gradient_offset_.assign(shape.parameters.size(), -1);
  bucket_of_.assign(shape.parameters.size(), -1);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const sharding::Bucket& bucket = buckets_[b];
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      bucket_of_[bucket.parameters[i]] = static_cast<int>(b);
      gradient_offset_[bucket.parameters[i]] = bucket.begin + bucket.offsets[i];
    }
    if (bucket.as_rows) {
      const int table = bucket.parameters.front();
      rows_.emplace(table, RowGradient(*model().parameters()[table], comm()));
    }
    gradient_extent_ = std::max(gradient_extent_, bucket.begin + bucket.extent);
  }
  const memory::CategoryScope scope(memory::Category::kGrad);
  gradients_ = comm().symmetric_empty(static_cast<std::size_t>(gradient_extent_) * sizeof(float));
  flat::zero(gradients_.data(), gradient_extent_, DType::kFloat32, model().device());
}

std::int64_t BucketedStrategy::padding_bytes() const {
  return weights_.padding_bytes() + 4 * (gradient_extent_ - weights_.layout().trainable_elements);
}

// [hooks]
void BucketedStrategy::start_step() {
  reduced_ = 0;
  reductions_.clear();
  ready_.assign(bucket_of_.size(), 0);
  for (auto& [table, rows] : rows_) rows.clear();
  missing_.clear();
  for (const sharding::Bucket& bucket : buckets_) {
    missing_.push_back(static_cast<int>(bucket.parameters.size()));
  }
}

at::Tensor BucketedStrategy::gradient_view(Parameter& parameter) {
  SHARDBENCH_CHECK(bucket_of_[parameter.index()] >= reduced_,
                   "gradient of {} is written after its bucket was reduced; announce several "
                   "backward passes with begin_micro_batch",
                   parameter.name());
  float* data = static_cast<float*>(gradients_.data()) + gradient_offset_[parameter.index()];
  return flat::view(data, parameter.dims(), DType::kFloat32, model().device());
}

void BucketedStrategy::gradient_ready(Parameter& parameter) {
  if (!last_micro_batch()) return;  // keep adding up; one reduction per step
  if (std::exchange(ready_[parameter.index()], 1) == 0) --missing_[bucket_of_[parameter.index()]];
  // Buckets leave in the same order on every rank, whatever order gradients come in.
  while (reduced_ < static_cast<int>(buckets_.size()) && missing_[reduced_] == 0) {
    reduce_next_bucket();
  }
}

void BucketedStrategy::reduce_the_rest() {
  while (reduced_ < static_cast<int>(buckets_.size())) {  // they hold unused parameters
    zero_unwritten(buckets_[reduced_]);
    reduce_next_bucket();
  }
  for (comm::Work& work : reductions_) work.wait();
  while (!narrow_.empty()) finish_narrow_bucket();
}

void BucketedStrategy::reduce_next_bucket() {
  const int index = reduced_++;
  if (buckets_[index].as_rows) return reduce_rows(buckets_[index]);
  if (options().reduce_dtype != DType::kFloat32) return narrow_next_bucket(index);
  std::vector<comm::Work> works = reduce_bucket(index);
  std::move(works.begin(), works.end(), std::back_inserter(reductions_));
}
// [/hooks]

void BucketedStrategy::add_rows(Parameter& parameter, const at::Tensor& indices,
                                const at::Tensor& grad) {
  rows_.at(parameter.index()).add(indices, grad);
}

void BucketedStrategy::reduce_rows(const sharding::Bucket& bucket) {
  const int table = bucket.parameters.front();
  const Parameter& parameter = *model().parameters()[table];
  const sharding::Range own{0, owns(table) ? parameter.numel() : 0};
  rows_.at(table).reduce(own, static_cast<float*>(gradients_.data()) + bucket.begin,
                         /*accumulate=*/false, tag("rows of " + parameter.name()));
}

void BucketedStrategy::narrow_next_bucket(int index) {
  const sharding::Bucket& bucket = buckets_[index];
  const DType dtype = options().reduce_dtype;
  {
    const memory::CategoryScope scope(memory::Category::kCommBuffer);
    narrow_.push_back(
        {index,
         comm().symmetric_empty(static_cast<std::size_t>(bucket.extent) * size_of(dtype)),
         {}});
  }
  const auto* gradients = static_cast<const float*>(gradients_.data()) + bucket.begin;
  convert_on_threads({gradients, bucket.extent, DType::kFloat32}, bucket_memory(index),
                     model().device());
  narrow_.back().reductions = reduce_bucket(index);
  while (narrow_.size() > kNarrowInFlight) finish_narrow_bucket();
}

void BucketedStrategy::finish_narrow_bucket() {
  NarrowBucket& narrow = narrow_.front();
  for (comm::Work& work : narrow.reductions) work.wait();
  const sharding::Bucket& bucket = buckets_[narrow.index];
  const DType dtype = options().reduce_dtype;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const int p = bucket.parameters[i];
    if (!owns(p)) continue;
    const auto* from = static_cast<const std::byte*>(narrow.memory.data());
    widen_on_threads({from + bucket.offsets[i] * element, model().parameters()[p]->numel(), dtype},
                     static_cast<float*>(gradients_.data()) + gradient_offset_[p], /*add=*/false,
                     model().device());
  }
  for (comm::Work& work : narrow.reductions) work.wait_released();
  narrow_.pop_front();
}

comm::Buffer BucketedStrategy::gradient_memory() const {
  return {gradients_.data(), gradient_extent_, DType::kFloat32};
}

comm::Buffer BucketedStrategy::bucket_memory(int index) const {
  const sharding::Bucket& bucket = buckets_[index];
  if (options().reduce_dtype != DType::kFloat32) {
    return {narrow_.back().memory.data(), bucket.extent, options().reduce_dtype};
  }
  return {static_cast<float*>(gradients_.data()) + bucket.begin, bucket.extent, DType::kFloat32};
}

void BucketedStrategy::zero_unwritten(const sharding::Bucket& bucket) {
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const Parameter& parameter = *model().parameters()[bucket.parameters[i]];
    if (parameter.gradient_started()) continue;
    flat::zero(static_cast<float*>(gradients_.data()) + bucket.begin + bucket.offsets[i],
               parameter.numel(), DType::kFloat32, model().device());
  }
}

}  // namespace shardbench::train
