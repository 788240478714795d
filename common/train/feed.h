#pragma once

#include <ATen/core/Tensor.h>

#include "common/data/sampler.h"
#include "common/train/config.h"

namespace shardbench::train {

/// Token batches [rows, seq] as tensors on the feed's device, and the forward context that belongs
/// to them.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// Draws micro-batches of a run. One per process; the source must outlive it.
class Feed {
 public:
  Feed(const RunConfig& config, const data::TokenSource& source, at::Device device = at::kCPU);

  /// Micro-batch `micro` of `rank` at `step` (all from 0); sets the thread's forward context.
  Batch training(std::int64_t step, int micro, int rank) const;
  /// The whole global batch of a step: all micro-batches of all ranks, in sample order.
  Batch global(std::int64_t step) const;
  /// Rows of `rank` in one round of an evaluation; never empty (a rank without rows gets the first
  /// held-out window as company for the others' collectives), `rows` says how many count.
  Batch held_out(const data::EvaluationPlan& plan, std::int64_t round, int rank,
                 std::int64_t* rows) const;
  data::EvaluationPlan evaluation_plan(std::int64_t max_windows) const;

 private:
  Batch empty_batch(std::int64_t rows) const;
  Batch on_device(const Batch& batch) const;
  void set_context(std::int64_t step, std::int64_t first_sample, bool training) const;

  RunConfig config_;
  const data::TokenSource& source_;
  at::Device device_;
  data::BatchShape shape_;
  data::Sampler sampler_;
};

}  // namespace shardbench::train
