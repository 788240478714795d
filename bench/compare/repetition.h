#pragma once

#include <cstdint>
#include <vector>

#include "common/train/result.h"

namespace shardbench::bench {

/// Measured steps (warm-up left out) of one repetition, in order, in ns: times of each step's
/// slowest rank; the exposed time is the mean over ranks. All of the same length.
struct RepetitionTimes {
  std::vector<std::int64_t> step, forward, backward, optimizer, exposed;
};

/// One entry per run, in the order in which they ran. Every rank of a run must hold its steps.
std::vector<RepetitionTimes> times_by_repetition(const std::vector<train::StrategyRun>& runs);

}  // namespace shardbench::bench
