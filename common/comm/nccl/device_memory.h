#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "common/comm/nccl/gpu_library.h"
#include "common/memory/category.h"
#include "common/memory/tracker.h"

namespace shardbench::comm {

/// Books device memory like the CPU allocator books the host's: in a tracker, under the category in
/// force on the thread that asks for it. Thread-safe.
class DeviceMemoryBook : public DeviceMemoryListener {
 public:
  explicit DeviceMemoryBook(memory::Tracker& tracker = memory::tracker()) : tracker_(tracker) {}

  void allocated(const void* data, std::int64_t bytes) override;
  void freed(const void* data) override;
  void refused(std::int64_t bytes, std::int64_t device_total, std::int64_t device_free) override;
  /// Books the block that holds `data` under `category` from now on; nothing for other memory.
  void retag(const void* data, memory::Category category);

  /// What was asked for and not had, the last time.
  struct Refusal {
    memory::Category category;  ///< in force on the thread that asked
    std::int64_t bytes;
    std::int64_t total, free;  ///< of the device
    memory::CategoryBytes live;
  };
  std::optional<Refusal> refusal() const;

 private:
  struct Block {
    std::int64_t bytes;
    memory::Category category;
  };
  memory::Tracker& tracker_;
  mutable std::mutex mutex_;
  std::optional<Refusal> refusal_;
  std::map<const std::byte*, Block> blocks_;
};

}  // namespace shardbench::comm
