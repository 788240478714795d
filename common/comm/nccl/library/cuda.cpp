#include <cuda_runtime_api.h>

#include "common/comm/nccl/library/parts.h"

namespace shardbench::comm {
namespace {

static_assert(static_cast<int>(CudaCode::kSuccess) == cudaSuccess);
static_assert(static_cast<int>(CudaCode::kNoDevice) == cudaErrorNoDevice);
static_assert(static_cast<int>(CudaCode::kNotReady) == cudaErrorNotReady);

CudaCode code_of(cudaError_t error) {
  // An error that a call returns would be returned again by somebody else's cudaGetLastError.
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<CudaCode>(error);
}

cudaStream_t stream_of(GpuStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(GpuEvent event) { return static_cast<cudaEvent_t>(event); }

class CudaRuntime : public CudaApi {
 public:
  CudaCode device_count(int& count) override { return code_of(cudaGetDeviceCount(&count)); }
  CudaCode set_device(int device) override { return code_of(cudaSetDevice(device)); }

  CudaCode stream_create(GpuStream& stream) override {
    cudaStream_t created = nullptr;
    const CudaCode code = code_of(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    stream = created;
    return code;
  }
  CudaCode stream_destroy(GpuStream stream) override {
    return code_of(cudaStreamDestroy(stream_of(stream)));
  }
  CudaCode stream_wait_event(GpuStream stream, GpuEvent event) override {
    return code_of(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
  }

  CudaCode event_create(GpuEvent& event, bool timed) override {
    cudaEvent_t created = nullptr;
    const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    const CudaCode code = code_of(cudaEventCreateWithFlags(&created, flags));
    event = created;
    return code;
  }
  CudaCode event_destroy(GpuEvent event) override {
    return code_of(cudaEventDestroy(event_of(event)));
  }
  CudaCode event_record(GpuEvent event, GpuStream stream) override {
    return code_of(cudaEventRecord(event_of(event), stream_of(stream)));
  }
  CudaCode event_query(GpuEvent event) override { return code_of(cudaEventQuery(event_of(event))); }
  CudaCode event_elapsed(float& ms, GpuEvent start, GpuEvent end) override {
    return code_of(cudaEventElapsedTime(&ms, event_of(start), event_of(end)));
  }

  CudaCode malloc_async(void*& data, std::size_t bytes, GpuStream stream) override {
    return code_of(cudaMallocAsync(&data, bytes, stream_of(stream)));
  }
  CudaCode free_async(void* data, GpuStream stream) override {
    return code_of(cudaFreeAsync(data, stream_of(stream)));
  }
  CudaCode memcpy_async(void* to, const void* from, std::size_t bytes, GpuStream stream) override {
    return code_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
  }
  CudaCode memset_async(void* to, int byte, std::size_t bytes, GpuStream stream) override {
    return code_of(cudaMemsetAsync(to, byte, bytes, stream_of(stream)));
  }
  CudaCode is_device_memory(bool& is_device, const void* data) override {
    cudaPointerAttributes attributes{};
    const CudaCode code = code_of(cudaPointerGetAttributes(&attributes, data));
    is_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return code;
  }
  std::string describe(CudaCode code) override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }
};

}  // namespace

CudaApi& cuda_runtime() {
  static CudaRuntime runtime;
  return runtime;
}

}  // namespace shardbench::comm
