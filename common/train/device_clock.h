#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/comm/nccl/device_timer.h"
#include "common/train/step_clock.h"

namespace shardbench::train {

/// By the clock of a GPU, between points of the stream on which the rank's kernels are queued: the
/// host is not stopped, and does not have to be where the GPU is.
class DeviceClock : public StepClock {
 public:
  /// Neither is owned; both outlive it.
  DeviceClock(comm::CudaApi& cuda, comm::DeviceHooks& hooks) : cuda_(cuda), hooks_(hooks) {}

  void enter(Phase phase) override;
  void stop() override;
  /// Throws InvariantError where the stream has not passed all marks yet.
  Times read() override;

 private:
  struct Stretch {
    Phase phase;
    std::unique_ptr<comm::DeviceTimer> timer;
  };
  comm::CudaApi& cuda_;
  comm::DeviceHooks& hooks_;
  std::optional<Stretch> running_;
  std::vector<Stretch> done_;
  std::vector<std::unique_ptr<comm::DeviceTimer>> free_;
};

/// Shows a profiler where the run is: one range, "backward h.3", from each position to the next,
/// whichever threads report them.
class ProfiledPosition {
 public:
  /// `ranges` may be null; never owned.
  explicit ProfiledPosition(comm::ProfilerRanges* ranges) : ranges_(ranges) {}
  ~ProfiledPosition() { close(); }
  ProfiledPosition(const ProfiledPosition&) = delete;
  ProfiledPosition& operator=(const ProfiledPosition&) = delete;

  void enter(Phase phase, std::string_view unit);
  void close();

 private:
  comm::ProfilerRanges* ranges_;
  std::optional<std::uint64_t> open_;
};

}  // namespace shardbench::train
