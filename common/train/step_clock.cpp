#include "common/train/step_clock.h"

#include <chrono>
#include <optional>
#include <utility>

namespace shardbench::train {

namespace {

class HostClock : public StepClock {
 public:
  void enter(Phase phase) override {
    stop();
    phase_ = phase;
    since_ = Clock::now();
  }
  void stop() override {
    if (!phase_) return;
    add_time(times_, *phase_, std::chrono::nanoseconds(Clock::now() - since_).count());
    phase_.reset();
  }
  Times read() override { return std::exchange(times_, {}); }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Phase> phase_;
  Clock::time_point since_;
  Times times_;
};

}  // namespace

std::unique_ptr<StepClock> host_clock() { return std::make_unique<HostClock>(); }

void add_time(StepClock::Times& times, Phase phase, std::int64_t ns) {
  if (phase == Phase::kForward) times.forward_ns += ns;
  if (phase == Phase::kBackward) times.backward_ns += ns;
  if (phase == Phase::kOptimizer) times.optimizer_ns += ns;
}

}  // namespace shardbench::train
