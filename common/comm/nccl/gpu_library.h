#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/dtype.h"

namespace shardbench::comm {

/// Opaque handles: cudaStream_t, cudaEvent_t, ncclComm_t. A null stream is the default stream.
using GpuStream = void*;
using GpuEvent = void*;
using NcclHandle = void*;

/// Return codes of the CUDA runtime; those not named here are only described.
enum class CudaCode : int { kSuccess = 0, kNoDevice = 100, kNotReady = 600 };
/// Return codes of NCCL.
enum class NcclCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

/// The few calls of the CUDA runtime that the nccl backend makes, one to one. Thread-safe, never
/// throws.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  virtual CudaCode device_count(int& count) = 0;
  virtual CudaCode set_device(int device) = 0;  ///< of the calling thread
  /// Not ordered with the default stream.
  virtual CudaCode stream_create(GpuStream& stream) = 0;
  virtual CudaCode stream_destroy(GpuStream stream) = 0;
  virtual CudaCode stream_wait_event(GpuStream stream, GpuEvent event) = 0;
  virtual CudaCode event_create(GpuEvent& event, bool timed) = 0;
  virtual CudaCode event_destroy(GpuEvent event) = 0;
  virtual CudaCode event_record(GpuEvent event, GpuStream stream) = 0;
  virtual CudaCode event_query(GpuEvent event) = 0;  ///< kNotReady: not passed yet
  virtual CudaCode event_elapsed(float& ms, GpuEvent start, GpuEvent end) = 0;
  /// Usable in order on `stream` only, until the free is reached there.
  virtual CudaCode malloc_async(void*& data, std::size_t bytes, GpuStream stream) = 0;
  virtual CudaCode free_async(void* data, GpuStream stream) = 0;
  /// Between any two kinds of memory.
  virtual CudaCode memcpy_async(void* to, const void* from, std::size_t bytes,
                                GpuStream stream) = 0;
  virtual CudaCode memset_async(void* to, int byte, std::size_t bytes, GpuStream stream) = 0;
  /// Whether kernels reach it as device or managed memory; false for all memory of the host.
  virtual CudaCode is_device_memory(bool& is_device, const void* data) = 0;
  virtual std::string describe(CudaCode code) = 0;
};

/// The calls of NCCL that the backend makes, one to one. Counts are in elements. Never throws.
class NcclApi {
 public:
  enum class Op { kSum, kAverage, kMax };
  virtual ~NcclApi() = default;

  virtual NcclCode unique_id(std::string& id) = 0;  ///< raw bytes
  /// Non-blocking: goes on in the background until async_error() no longer says kInProgress.
  virtual NcclCode init_rank(NcclHandle& comm, int world_size, const std::string& id, int rank) = 0;
  virtual NcclCode async_error(NcclHandle comm, NcclCode& state) = 0;
  virtual NcclCode finalize(NcclHandle comm) = 0;
  virtual NcclCode destroy(NcclHandle comm) = 0;
  virtual NcclCode abort(NcclHandle comm) = 0;  ///< also frees `comm`

  virtual NcclCode group_start() = 0;
  virtual NcclCode group_end() = 0;
  /// `count` is that of one rank's part, as NCCL has it, in the next two.
  virtual NcclCode all_gather(const void* send, void* receive, std::size_t count, DType dtype,
                              NcclHandle comm, GpuStream stream) = 0;
  virtual NcclCode reduce_scatter(const void* send, void* receive, std::size_t count, DType dtype,
                                  Op op, NcclHandle comm, GpuStream stream) = 0;
  virtual NcclCode all_reduce(const void* send, void* receive, std::size_t count, DType dtype,
                              Op op, NcclHandle comm, GpuStream stream) = 0;
  virtual NcclCode broadcast(const void* send, void* receive, std::size_t count, DType dtype,
                             int root, NcclHandle comm, GpuStream stream) = 0;
  virtual NcclCode reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                          int root, NcclHandle comm, GpuStream stream) = 0;
  /// The code's name; with a communicator (may be null) also what it last said itself.
  virtual std::string describe(NcclCode code, NcclHandle comm) = 0;
};

/// What the owner of the caller's memory and streams does for the backend: LibTorch where there is
/// one (its current stream, its caching allocator, its kernels). Used by the thread of the rank.
class DeviceHooks {
 public:
  virtual ~DeviceHooks() = default;

  /// The stream of the caller's kernels now.
  virtual GpuStream current_stream() = 0;
  /// `stream` uses the block that holds `data`: once freed, it may be handed out again only after
  /// what is queued there now.
  virtual void record_stream(const void* data, GpuStream stream) = 0;
  /// Scratch memory in order on `stream`, as CudaApi::malloc_async; throws when there is none.
  virtual void* allocate(std::size_t bytes, GpuStream stream) = 0;
  virtual void release(void* data, GpuStream stream) = 0;
  /// target[i] += source[i], rounded once, queued on `stream`.
  virtual void add_into(void* target, const void* source, std::int64_t count, DType dtype,
                        GpuStream stream) = 0;
};

/// Told of every block that LibTorch's CUDA allocator hands out and takes back, on the thread that
/// asked, with the bytes it set aside. Must not allocate device memory.
class DeviceMemoryListener {
 public:
  virtual ~DeviceMemoryListener() = default;
  virtual void allocated(const void* data, std::int64_t bytes) = 0;
  virtual void freed(const void* data) = 0;
  /// There is no room for a block of these bytes, whatever the allocator gave back; it throws next.
  virtual void refused(std::int64_t bytes, std::int64_t device_total, std::int64_t device_free) = 0;
};

/// LibTorch's CUDA side, as far as other rooms need it without linking it.
class TorchCuda {
 public:
  struct MemoryFigures {
    std::int64_t allocated = 0, allocated_peak = 0;
    std::int64_t reserved = 0, reserved_peak = 0;
  };
  virtual ~TorchCuda() = default;

  /// Starts ATen's CUDA and makes `device` the calling thread's; throws what ATen throws.
  virtual void use_device(int device) = 0;
  virtual DeviceHooks& hooks() = 0;
  /// From now on and for good; never owned. Call it once, before the first device tensor.
  virtual void watch_memory(DeviceMemoryListener* listener) = 0;
  virtual MemoryFigures memory(int device) = 0;
  virtual void reset_peak_memory(int device) = 0;
};

/// Named ranges for a profiler (NVTX); cost nothing where none is attached. They may overlap, and
/// end on another thread than they began on.
class ProfilerRanges {
 public:
  virtual ~ProfilerRanges() = default;
  virtual std::uint64_t start(const char* name) = 0;
  virtual void end(std::uint64_t range) = 0;
};

/// All that libshardbench_nccl.so offers. It holds no logic of its own.
struct GpuLibrary {
  const char* version = nullptr;  ///< of the shardbench it was built with
  CudaApi* cuda = nullptr;
  NcclApi* nccl = nullptr;
  ProfilerRanges* ranges = nullptr;
  TorchCuda* torch = nullptr;  ///< null where it was built without LibTorch's CUDA side
};

}  // namespace shardbench::comm
