#include "common/comm/nccl/cuda_stream.h"

#include "common/core/error.h"

namespace shardbench::comm {

void check_cuda(CudaApi& cuda, CudaCode code, std::string_view call) {
  if (code != CudaCode::kSuccess) {
    throw InvariantError(fmt::format("{}: {}", call, cuda.describe(code)));
  }
}

CudaStream::CudaStream(CudaApi& cuda) : cuda_(cuda) {
  check_cuda(cuda_, cuda_.stream_create(stream_), "cudaStreamCreateWithFlags");
  fence_ = take_event();
}

CudaStream::~CudaStream() {
  for (GpuEvent event : all_) cuda_.event_destroy(event);
  cuda_.stream_destroy(stream_);
}

void CudaStream::follow(GpuStream other) {
  // A wait is for what the event marks when the wait is queued, so one event serves all calls.
  check_cuda(cuda_, cuda_.event_record(fence_, other), "cudaEventRecord");
  check_cuda(cuda_, cuda_.stream_wait_event(stream_, fence_), "cudaStreamWaitEvent");
}

GpuEvent CudaStream::mark() {
  const GpuEvent event = take_event();
  check_cuda(cuda_, cuda_.event_record(event, stream_), "cudaEventRecord");
  return event;
}

bool CudaStream::passed(GpuEvent event) const {
  const CudaCode code = cuda_.event_query(event);
  if (code == CudaCode::kNotReady) return false;
  check_cuda(cuda_, code, "cudaEventQuery");
  return true;
}

GpuEvent CudaStream::take_event() {
  GpuEvent event = nullptr;
  if (free_.empty()) {
    check_cuda(cuda_, cuda_.event_create(event, /*timed=*/false), "cudaEventCreateWithFlags");
    all_.push_back(event);
  } else {
    event = free_.back();
    free_.pop_back();
  }
  return event;
}

}  // namespace shardbench::comm
