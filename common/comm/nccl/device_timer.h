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

}  // namespace shardbench::comm
