#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>

#include "common/comm/nccl/library/parts.h"
#include "common/ops/dtype.h"

namespace shardbench::comm {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The live blocks of the caching allocator, by address: told by its trace.
class LiveBlocks {
 public:
  void attach() {
    allocator::attachAllocatorTraceTracker([this](const auto& entry) {
      using Entry = std::decay_t<decltype(entry)>;
      const auto address = static_cast<std::uintptr_t>(entry.addr_);
      if (entry.action_ == Entry::ALLOC) {
        add(address, entry.size_);
      } else if (entry.action_ == Entry::FREE_REQUESTED) {
        remove(address);
      }
    });
  }
  /// Called where memory is asked for, with the allocator's lock held.
  void watch_refusals() {
    allocator::attachOutOfMemoryObserver(
        [this](std::int64_t, std::size_t bytes, std::size_t total, std::size_t free) {
          const std::lock_guard lock(mutex_);
          if (listener_ == nullptr) return;
          listener_->refused(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(total),
                             static_cast<std::int64_t>(free));
        });
  }
  void tell(DeviceMemoryListener* listener) {
    const std::lock_guard lock(mutex_);
    listener_ = listener;
  }
  /// The start of the block that holds `data`; null if the allocator did not make it.
  void* start_of(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    auto block = sizes_.upper_bound(address);
    if (block == sizes_.begin()) return nullptr;
    --block;
    return address < block->first + block->second ? reinterpret_cast<void*>(block->first) : nullptr;
  }

 private:
  void add(std::uintptr_t address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[address] = bytes;
    if (listener_ == nullptr) return;
    listener_->allocated(reinterpret_cast<void*>(address), static_cast<std::int64_t>(bytes));
  }
  void remove(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    if (sizes_.erase(address) == 0 || listener_ == nullptr) return;
    listener_->freed(reinterpret_cast<void*>(address));
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> sizes_;
  DeviceMemoryListener* listener_ = nullptr;
};

class TorchHooks : public DeviceHooks {
 public:
  explicit TorchHooks(LiveBlocks& blocks) : blocks_(blocks) {}

  GpuStream current_stream() override { return c10::cuda::getCurrentCUDAStream().stream(); }

  void record_stream(const void* data, GpuStream stream) override {
    void* const start = blocks_.start_of(data);
    if (start == nullptr) return;
    // The allocator takes only a handle that looks like the owner's.
    const c10::cuda::CUDAStream user = external(stream);
    c10::DataPtr handle(start, start, allocator::get()->raw_deleter(), user.device());
    try {
      allocator::recordStream(handle, user);
    } catch (...) {
      handle.release_context();
      throw;
    }
    handle.release_context();
  }

  void* allocate(std::size_t bytes, GpuStream stream) override {
    return allocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  }
  void release(void* data, GpuStream) override { allocator::raw_delete(data); }

  void add_into(void* target, const void* source, std::int64_t count, DType dtype,
                GpuStream stream) override {
    const c10::cuda::CUDAStreamGuard guard(external(stream));
    at::Tensor sum = view(target, count, dtype);
    sum.add_(view(const_cast<void*>(source), count, dtype));
  }

 private:
  static c10::cuda::CUDAStream external(GpuStream stream) {
    return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream),
                                            c10::cuda::current_device());
  }
  static at::Tensor view(void* data, std::int64_t count, DType dtype) {
    const c10::Device device(c10::kCUDA, c10::cuda::current_device());
    return at::for_blob(data, {count})
        .target_device(device)
        .options(at::TensorOptions(ops::scalar_type(dtype)).device(device))
        .make_tensor();
  }

  LiveBlocks& blocks_;
};

class AtenCuda : public TorchCuda {
 public:
  void use_device(int device) override {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    static std::once_flag attached;  // after the start: it reaches only devices that are known
    std::call_once(attached, [this] {
      blocks_.attach();
      blocks_.watch_refusals();
    });
  }
  DeviceHooks& hooks() override { return hooks_; }
  void watch_memory(DeviceMemoryListener* listener) override { blocks_.tell(listener); }

  MemoryFigures memory(int device) override {
    constexpr std::size_t kAllPools = 0;
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const auto& allocated = stats.allocated_bytes[kAllPools];
    const auto& reserved = stats.reserved_bytes[kAllPools];
    return {allocated.current, allocated.peak, reserved.current, reserved.peak};
  }
  void reset_peak_memory(int device) override {
    allocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  }

 private:
  LiveBlocks blocks_;
  TorchHooks hooks_{blocks_};
};

}  // namespace

TorchCuda* torch_cuda() {
  static auto* const cuda = new AtenCuda;  // never destroyed: blocks are freed until the very end
  return cuda;
}

}  // namespace shardbench::comm
