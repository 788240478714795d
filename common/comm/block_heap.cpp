#include "common/comm/block_heap.h"

#include <algorithm>

#include "common/core/error.h"
#include "common/memory/tracker.h"

namespace shardbench::comm {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

BlockHeap::BlockHeap(std::shared_ptr<void> memory, std::byte* base, std::size_t size,
                     std::string name)
    : memory_(std::move(memory)), base_(base), size_(size), name_(std::move(name)) {
  insert_free(0, size_);
}

void BlockHeap::insert_free(std::size_t offset, std::size_t size) {
  free_.emplace(offset, size);
  free_by_size_.emplace(size, offset);
}

void BlockHeap::erase_free(std::map<std::size_t, std::size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

SymmetricMemory BlockHeap::allocate(std::size_t bytes, std::size_t booked) {
  // Distinct addresses also for empty blocks; no rounding past the largest number.
  const std::size_t size =
      std::max(kAlignment, (std::min(bytes, size_) + kAlignment - 1) / kAlignment * kAlignment);
  const memory::Category category = memory::current_category();
  std::size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto fit = free_by_size_.lower_bound({size, 0});
    if (fit == free_by_size_.end() || bytes > size_) {
      throw UserError::format(
          "{} bytes are asked for, but {} of {} bytes has no free block that large ({} in use): "
          "use a smaller model or batch, or raise ulimit -v",
          bytes, name_, size_, used_bytes_);
    }
    offset = fit->second;
    const std::size_t rest = fit->first - size;
    erase_free(free_.find(offset));
    if (rest > 0) insert_free(offset + size, rest);
    used_.emplace(offset, Used{size, booked, category});
    used_bytes_ += size;
  }
  memory::tracker().add(category, static_cast<std::int64_t>(booked));
  return SymmetricMemory(shared_from_this(), base_ + offset, bytes);
}

void BlockHeap::release(void* data) {
  Used block;
  {
    const std::lock_guard lock(mutex_);
    std::size_t offset = offset_of(data);
    const auto used = used_.find(offset);
    SHARDBENCH_CHECK(used != used_.end(), "no block of {} starts at offset {}", name_, offset);
    block = used->second;
    used_.erase(used);
    used_bytes_ -= block.size;

    std::size_t size = block.size;
    auto next = free_.lower_bound(offset);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        erase_free(before);
      }
    }
    if (next != free_.end() && offset + size == next->first) {
      size += next->second;
      erase_free(next);
    }
    insert_free(offset, size);
  }
  memory::tracker().remove(block.category, static_cast<std::int64_t>(block.asked));
}

bool BlockHeap::contains(const void* data, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  return begin >= base_ && begin + bytes <= base_ + size_;
}

std::size_t BlockHeap::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace shardbench::comm
