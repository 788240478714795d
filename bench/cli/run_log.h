#pragma once

#include <optional>
#include <string>

#include "common/train/result.h"

namespace shardbench::cli {

struct LogOptions {
  int log_every = 10;
  std::optional<double> bigram;  ///< nats per byte on the held-out tenth; what has to be beaten
};

/// The lines of a training run: step, loss, gradient norm, learning rate, tokens per second (all
/// tokens since the line before over all their time, slowest rank), highest peak so far; between
/// them the evaluations. Requires a run that ended.
std::string training_log(const train::StrategyRun& run, const LogOptions& options);

}  // namespace shardbench::cli
