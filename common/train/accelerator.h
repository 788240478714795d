#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "common/comm/launch/ranks.h"
#include "common/comm/nccl/device_memory.h"
#include "common/train/device_clock.h"

namespace shardbench::train {

/// The GPU that a rank computes on: what its step loop needs of it beside tensors. While it lives,
/// device memory is booked in memory::tracker() under the categories in force.
class Accelerator {
 public:
  /// Of a transport whose rank computes on a device.
  explicit Accelerator(const comm::RankDevice& device);

  at::Device device() const { return device_; }
  StepClock& clock() { return clock_; }
  void enter(Phase phase, std::string_view unit) { position_.enter(phase, unit); }

 private:
  at::Device device_;
  DeviceClock clock_;
  ProfiledPosition position_;
};

/// Where a rank computes.
at::Device device_of(const comm::RankDevice& device);

/// What device memory the process has asked for and not got, in one line with the category that was
/// to grow and what the others hold; empty where it has got all.
std::string out_of_memory_text();
std::string out_of_memory_text(const comm::DeviceMemoryBook::Refusal& refusal);

}  // namespace shardbench::train
