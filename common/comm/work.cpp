#include <thread>

#include "common/comm/communicator.h"

namespace shardbench::comm {

void Work::wait(Deadline deadline) {
  if (state_ != nullptr) state_->wait(State::Goal::kComplete, deadline);
}

void Work::wait_released(Deadline deadline) {
  if (state_ != nullptr) state_->wait(State::Goal::kReleased, deadline);
}

bool Work::done() const { return state_ == nullptr || state_->reached(State::Goal::kComplete); }

std::chrono::steady_clock::time_point Work::last_arrival() const {
  if (state_ == nullptr) return {};
  state_->wait(State::Goal::kArrived, {});
  return state_->last_arrival();
}

bool Work::State::wait_some(Goal goal, std::chrono::nanoseconds longest) {
  constexpr std::chrono::nanoseconds kNap = std::chrono::microseconds(50);
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!reached(goal)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

}  // namespace shardbench::comm
