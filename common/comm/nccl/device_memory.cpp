#include "common/comm/nccl/device_memory.h"

namespace shardbench::comm {

void DeviceMemoryBook::allocated(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const memory::Category category = memory::current_category();
  blocks_[static_cast<const std::byte*>(data)] = {bytes, category};
  tracker_.add(category, bytes);
}

void DeviceMemoryBook::freed(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<const std::byte*>(data));
  if (block == blocks_.end()) return;  // from before the book was opened
  tracker_.remove(block->second.category, block->second.bytes);
  blocks_.erase(block);
}

void DeviceMemoryBook::retag(const void* data, memory::Category category) {
  const std::lock_guard lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(data);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return;
  --block;
  if (at >= block->first + block->second.bytes) return;
  tracker_.retag(block->second.category, category, block->second.bytes);
  block->second.category = category;
}

void DeviceMemoryBook::refused(std::int64_t bytes, std::int64_t device_total,
                               std::int64_t device_free) {
  const std::lock_guard lock(mutex_);
  refusal_ = Refusal{memory::current_category(), bytes, device_total, device_free, tracker_.live()};
}

std::optional<DeviceMemoryBook::Refusal> DeviceMemoryBook::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

}  // namespace shardbench::comm
