#pragma once

#include <cstdint>
#include <memory>

#include "common/core/phase.h"

namespace shardbench::train {

/// Where the time of one rank's step goes, phase by phase. Between stop() and enter() nothing runs.
class StepClock {
 public:
  struct Times {
    std::int64_t forward_ns = 0;
    std::int64_t backward_ns = 0;
    std::int64_t optimizer_ns = 0;
  };
  virtual ~StepClock() = default;

  /// What follows is of this phase (forward, backward or optimizer); the one before ends here.
  virtual void enter(Phase phase) = 0;
  virtual void stop() = 0;
  /// Of all phases since the last read. Only when all of the step is through.
  virtual Times read() = 0;
};

/// By the host's clock: for a run that computes where it queues.
std::unique_ptr<StepClock> host_clock();

/// Adds to the phase's part; nothing for other phases.
void add_time(StepClock::Times& times, Phase phase, std::int64_t ns);

}  // namespace shardbench::train
