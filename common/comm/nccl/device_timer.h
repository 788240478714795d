#pragma once

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// The time between two points of a device's stream, without stopping the host: what a step takes
/// on the device. May be used again once ms() has been read.
class DeviceTimer {
 public:
  explicit DeviceTimer(CudaApi& cuda);
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  /// Marks the point that the stream reaches when all that is queued now is done.
  void start(GpuStream stream);
  void stop(GpuStream stream);
  /// Whether the stream has passed both points.
  bool ready() const;
  /// Milliseconds between them (resolution about half a microsecond). Needs ready().
  double ms() const;

 private:
  CudaApi& cuda_;
  GpuEvent start_ = nullptr;
  GpuEvent stop_ = nullptr;
};

/// Shows the time until its end as a named range in a profiler; `ranges` may be null.
class ProfilerRange {
 public:
  ProfilerRange(ProfilerRanges* ranges, const char* name) : ranges_(ranges) {
    if (ranges_ != nullptr) range_ = ranges_->start(name);
  }
  ~ProfilerRange() {
    if (ranges_ != nullptr) ranges_->end(range_);
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  ProfilerRanges* ranges_;
  std::uint64_t range_ = 0;
};

}  // namespace shardbench::comm
