#pragma once

#include <cstdint>

#include "common/data/token_source.h"
#include "common/sharding/layout.h"

namespace shardbench::data {

/// A permutation of [0, count) that is computed, not stored: a Feistel network over the next even
/// power of two, walked until it falls inside. Equal (count, key) give equal permutations.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t key);
  /// index in [0, count); one to one.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::int64_t count_;
  std::uint64_t key_;
  int half_bits_;
};

/// How samples go to ranks: batch rows per rank and micro-batch.
struct BatchShape {
  int world_size = 1;
  std::int64_t batch = 1;  ///< sequences per rank and micro-batch
  int accumulation = 1;    ///< micro-batches per step
  std::int64_t seq = 1;

  /// Sequences of all ranks in one step.
  std::int64_t global_batch() const { return batch * world_size * accumulation; }
};

/// Which training window each (step, micro-batch, rank, row) reads. Samples are numbered through
/// the whole run, step by step; sample i belongs to epoch i / windows, and each epoch goes through
/// all windows once in its own order, a function of (seed, epoch) only. So the union over ranks of
/// a step is the global batch, whatever the world size, and ranks read disjoint samples.
class Sampler {
 public:
  /// `source` must outlive the sampler and have at least one training window.
  Sampler(const TokenSource& source, std::uint64_t seed, const BatchShape& shape);

  /// step and micro count from 0.
  std::int64_t sample_index(std::int64_t step, int micro, int rank, std::int64_t row) const;
  /// The training window of a sample.
  std::int64_t window_of(std::int64_t sample) const;
  std::int64_t windows() const { return windows_; }
  std::int64_t epoch_of(std::int64_t sample) const { return sample / windows_; }

  /// Writes one rank's micro-batch: tokens and targets [batch, seq], row-major.
  void fill(std::int64_t step, int micro, int rank, std::int64_t* tokens,
            std::int64_t* targets) const;

 private:
  const TokenSource& source_;
  std::uint64_t seed_;
  BatchShape shape_;
  std::int64_t windows_;
};

/// Held-out windows in order, each read once by one rank: round b covers the next batch * W
/// windows, cut evenly over the ranks. Every rank goes through the same number of rounds (the
/// collectives of sharded models need all), in the last ones with fewer rows or none.
class EvaluationPlan {
 public:
  /// At most `max_windows` windows (0: all held out).
  EvaluationPlan(const TokenSource& source, const BatchShape& shape, std::int64_t max_windows = 0);

  std::int64_t windows() const { return windows_; }
  std::int64_t rounds() const;
  /// The held-out windows of `rank` in this round; may be empty.
  sharding::Range rows(std::int64_t round, int rank) const;
  /// Writes them: tokens and targets [rows, seq]; returns the number of rows.
  std::int64_t fill(std::int64_t round, int rank, std::int64_t* tokens,
                    std::int64_t* targets) const;

 private:
  const TokenSource& source_;
  BatchShape shape_;
  std::int64_t windows_;
};

}  // namespace shardbench::data
