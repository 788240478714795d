#include "common/comm/nccl/device_timer.h"

#include "common/comm/nccl/cuda_stream.h"
#include "common/core/error.h"

namespace shardbench::comm {

DeviceTimer::DeviceTimer(CudaApi& cuda) : cuda_(cuda) {
  for (GpuEvent* event : {&start_, &stop_}) {
    check_cuda(cuda_, cuda_.event_create(*event, /*timed=*/true), "cudaEventCreateWithFlags");
  }
}

DeviceTimer::~DeviceTimer() {
  cuda_.event_destroy(start_);
  cuda_.event_destroy(stop_);
}

void DeviceTimer::start(GpuStream stream) {
  check_cuda(cuda_, cuda_.event_record(start_, stream), "cudaEventRecord");
}

void DeviceTimer::stop(GpuStream stream) {
  check_cuda(cuda_, cuda_.event_record(stop_, stream), "cudaEventRecord");
}

bool DeviceTimer::ready() const {
  for (GpuEvent event : {start_, stop_}) {
    const CudaCode code = cuda_.event_query(event);
    if (code == CudaCode::kNotReady) return false;
    check_cuda(cuda_, code, "cudaEventQuery");
  }
  return true;
}

double DeviceTimer::ms() const {
  SHARDBENCH_CHECK(ready(), "the stream has not come to the end of what is timed");
  float ms = 0;
  check_cuda(cuda_, cuda_.event_elapsed(ms, start_, stop_), "cudaEventElapsedTime");
  return ms;
}

}  // namespace shardbench::comm
