#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/train/config.h"
#include "common/train/result.h"

namespace shardbench::cli {

struct LogOptions {
  int log_every = 10;
  std::optional<double> bigram;  ///< nats per byte on the held-out tenth; what has to be beaten
};

/// Makes the lines of a training run as it goes, from rank 0's steps: step, loss, gradient norm,
/// learning rate, tokens per second (all ranks' tokens since the line before over the time of those
/// steps), highest peak so far, loss scale where there is one; between them the evaluations, and
/// the steps that were skipped.
class TrainingLog {
 public:
  TrainingLog(const train::RunConfig& config, const LogOptions& options);

  /// The two lines above the columns.
  std::string header() const;
  /// The line of a step (from 1), or nothing between lines, after one that says that the step was
  /// skipped. Call for every step, in order.
  std::string step(int step, const train::StepRecord& record, std::int64_t peak_bytes);
  /// The line of an evaluation after `step`; `last`: of the whole held-out part.
  std::string evaluation(int step, double loss, bool last) const;

 private:
  train::RunConfig config_;
  LogOptions options_;
  std::int64_t since_ns_ = 0;
  int since_steps_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace shardbench::cli
