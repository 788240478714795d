#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "common/comm/communicator.h"
#include "common/comm/shm/segment.h"
#include "common/memory/category.h"

namespace shardbench::comm {

/// Symmetric memory of one rank: blocks of its arena, the smallest free one that fits (the lowest
/// of equal ones), neighbours joined when freed. The book-keeping lies in the rank's own memory.
/// Thread-safe. Asked-for bytes are booked in memory::tracker() under the caller's category.
class SymmetricHeap : public SymmetricMemory::Owner,
                      public std::enable_shared_from_this<SymmetricHeap> {
 public:
  SymmetricHeap(std::shared_ptr<SharedSegment> segment, int rank);

  /// Throws UserError when the arena is full.
  SymmetricMemory allocate(std::size_t bytes) { return allocate(bytes, bytes); }
  /// The same with only `booked` bytes put down for this rank.
  SymmetricMemory allocate(std::size_t bytes, std::size_t booked);
  void release(void* data) override;

  /// Whether [data, data + bytes) lies in this arena, so that peers can reach it by offset.
  bool contains(const void* data, std::size_t bytes) const;
  std::size_t offset_of(const void* data) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) - base_);
  }
  /// Bytes handed out now, rounding included.
  std::size_t used_bytes() const;

 private:
  struct Used {
    std::size_t size = 0;   ///< rounded to 64
    std::size_t asked = 0;  ///< booked
    memory::Category category = memory::Category::kOther;
  };
  void insert_free(std::size_t offset, std::size_t size);
  void erase_free(std::map<std::size_t, std::size_t>::iterator block);

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::byte* base_;
  std::size_t size_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;                     ///< offset -> size
  std::set<std::pair<std::size_t, std::size_t>> free_by_size_;  ///< (size, offset)
  std::map<std::size_t, Used> used_;                            ///< by offset
  std::size_t used_bytes_ = 0;
};

}  // namespace shardbench::comm
