#pragma once

#include <cstddef>
#include <utility>

#include "common/comm/nccl/gpu_library.h"
#include "common/memory/category.h"

namespace shardbench::comm {

/// Device memory in order on one stream: usable there at once, and given back in order there, so it
/// may be dropped while what uses it is still queued. Owning, movable; booked as comm_buffer.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(DeviceHooks& hooks, std::size_t bytes, GpuStream stream)
      : hooks_(&hooks), stream_(stream) {
    const memory::CategoryScope scope(memory::Category::kCommBuffer);
    data_ = static_cast<std::byte*>(hooks.allocate(bytes, stream));
  }
  ScratchMemory(ScratchMemory&& other) noexcept { swap(other); }
  ScratchMemory& operator=(ScratchMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ScratchMemory() {
    if (data_ != nullptr) hooks_->release(data_, stream_);
  }
  std::byte* data() const { return data_; }

 private:
  void swap(ScratchMemory& other) noexcept {
    std::swap(hooks_, other.hooks_);
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
  }
  DeviceHooks* hooks_ = nullptr;
  GpuStream stream_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace shardbench::comm
