#include "common/train/device_clock.h"

#include <fmt/format.h>

#include <cmath>

#include "common/core/error.h"

namespace shardbench::train {

void DeviceClock::enter(Phase phase) {
  stop();
  if (free_.empty()) free_.push_back(std::make_unique<comm::DeviceTimer>(cuda_));
  running_ = Stretch{phase, std::move(free_.back())};
  free_.pop_back();
  running_->timer->start(hooks_.current_stream());
}

void DeviceClock::stop() {
  if (!running_) return;
  running_->timer->stop(hooks_.current_stream());
  done_.push_back(std::move(*running_));
  running_.reset();
}

StepClock::Times DeviceClock::read() {
  Times times;
  for (Stretch& stretch : done_) {
    SHARDBENCH_CHECK(stretch.timer->ready(), "the time of a step is read before its end");
    add_time(times, stretch.phase, std::llround(stretch.timer->ms() * 1e6));
    free_.push_back(std::move(stretch.timer));
  }
  done_.clear();
  return times;
}

void ProfiledPosition::enter(Phase phase, std::string_view unit) {
  if (ranges_ == nullptr) return;
  close();
  const std::string name =
      unit.empty() ? std::string(name_of(phase)) : fmt::format("{} {}", name_of(phase), unit);
  open_ = ranges_->start(name.c_str());
}

void ProfiledPosition::close() {
  if (open_) ranges_->end(*open_);
  open_.reset();
}

}  // namespace shardbench::train
