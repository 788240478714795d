#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/ops/tuning.h"

namespace shardbench::ops {

struct TunerOptions {
  /// Rounds over all keys end when it is spent. Three run anyway, unless they and the check of
  /// values take four times as long.
  double budget_s = 2.0;
  int most_rounds = 20;
  std::function<std::int64_t()> now_ns;  ///< for tests; empty: the steady clock
  /// For tests; empty: what this LibTorch and machine have (see linear_candidates.h).
  std::function<bool(Candidate)> available;
};

/// Times every candidate of every key on random data and chooses. Candidates take turns, round
/// after round; one that stays behind its key's best by half is dropped. The shortest time counts,
/// since others who use the machine only ever add to it. Weights
/// and their gradients lie in a pool larger than usual caches and are met cold, inputs and outputs
/// are met as they come, as in a training step. A candidate whose values differ from the plain
/// one's by more than rounding is marked and never chosen.
///
/// Uses this thread's LibTorch settings (threads), 64 MiB or the largest weight if that is more,
/// the two largest inputs, and two results at a time. Keys that the time did not suffice for are
/// left out.
std::vector<TunedEntry> measure(const std::vector<TuneKey>& keys, const TunerOptions& options = {});

/// What one pass works on.
struct PassArguments {
  at::Tensor rows;    ///< x; for gradients, the output's gradient
  at::Tensor other;   ///< the weight; for its gradient, x
  at::Tensor bias;    ///< may be undefined
  at::Tensor target;  ///< of the weight's gradient, else undefined
};
/// Runs a candidate and returns its result: the target, where there is one.
using RunCandidate = std::function<at::Tensor(Candidate, const TuneKey&, const PassArguments&)>;
/// The same with another way to run candidates, for tests.
std::vector<TunedEntry> measure(const std::vector<TuneKey>& keys, const TunerOptions& options,
                                const RunCandidate& run);

}  // namespace shardbench::ops
