#include "common/train/feed.h"

#include <ATen/ATen.h>

#include "common/ops/forward_context.h"

namespace shardbench::train {

namespace {

data::BatchShape batch_shape(const RunConfig& config) {
  return {config.world_size, config.batch, config.accumulation, config.seq};
}

}  // namespace

Feed::Feed(const RunConfig& config, const data::TokenSource& source, at::Device device)
    : config_(config),
      source_(source),
      device_(device),
      shape_(batch_shape(config)),
      sampler_(source, config.seed, shape_) {}

Batch Feed::training(std::int64_t step, int micro, int rank) const {
  Batch batch = empty_batch(config_.batch);
  sampler_.fill(step, micro, rank, batch.tokens.data_ptr<std::int64_t>(),
                batch.targets.data_ptr<std::int64_t>());
  set_context(step, sampler_.sample_index(step, micro, rank, 0), true);
  return on_device(batch);
}

Batch Feed::global(std::int64_t step) const {
  Batch batch = empty_batch(shape_.global_batch());
  const std::int64_t stride = config_.batch * config_.seq;
  std::int64_t at = 0;
  for (int micro = 0; micro < config_.accumulation; ++micro) {
    for (int rank = 0; rank < config_.world_size; ++rank, at += stride) {
      sampler_.fill(step, micro, rank, batch.tokens.data_ptr<std::int64_t>() + at,
                    batch.targets.data_ptr<std::int64_t>() + at);
    }
  }
  set_context(step, sampler_.sample_index(step, 0, 0, 0), true);
  return on_device(batch);
}

Batch Feed::held_out(const data::EvaluationPlan& plan, std::int64_t round, int rank,
                     std::int64_t* rows) const {
  *rows = plan.rows(round, rank).size();
  Batch batch = empty_batch(std::max<std::int64_t>(*rows, 1));
  auto* tokens = batch.tokens.data_ptr<std::int64_t>();
  auto* targets = batch.targets.data_ptr<std::int64_t>();
  if (*rows > 0) {
    plan.fill(round, rank, tokens, targets);
  } else {
    source_.read(data::Split::kHeldOut, 0, config_.seq, tokens, targets);
  }
  set_context(0, 0, false);
  return on_device(batch);
}

data::EvaluationPlan Feed::evaluation_plan(std::int64_t max_windows) const {
  return data::EvaluationPlan(source_, shape_, max_windows);
}

Batch Feed::empty_batch(std::int64_t rows) const {
  const auto options = at::TensorOptions().dtype(at::kLong);
  return {at::empty({rows, config_.seq}, options), at::empty({rows, config_.seq}, options)};
}

/// The host goes on at once: of its memory that is not pinned CUDA makes a copy first.
Batch Feed::on_device(const Batch& batch) const {
  const at::TensorOptions there = at::TensorOptions().device(device_);
  return {batch.tokens.to(there, /*non_blocking=*/true),
          batch.targets.to(there, /*non_blocking=*/true)};
}

void Feed::set_context(std::int64_t step, std::int64_t first_sample, bool training) const {
  ops::forward_context() = {config_.seed, step, first_sample, training};
}

}  // namespace shardbench::train
