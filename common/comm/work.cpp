#include "common/comm/communicator.h"

namespace shardbench::comm {

void Work::wait(Deadline deadline) {
  if (state_ != nullptr) state_->wait(deadline);
}

void Work::wait_released(Deadline deadline) {
  if (state_ != nullptr) state_->wait_released(deadline);
}

bool Work::done() const { return state_ == nullptr || state_->done(); }

std::chrono::steady_clock::time_point Work::last_arrival() const {
  if (state_ == nullptr) return {};
  state_->wait_arrived({});
  return state_->last_arrival();
}

}  // namespace shardbench::comm
