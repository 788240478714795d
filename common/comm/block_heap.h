#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "common/comm/communicator.h"
#include "common/memory/category.h"

namespace shardbench::comm {

/// Address space asked for to hand out blocks of: halved down to the smallest until it can be had.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kLargestArena = std::size_t{1} << 30;  // sanitizers leave less
#else
inline constexpr std::size_t kLargestArena = std::size_t{64} << 30;
#endif
inline constexpr std::size_t kSmallestArena = std::size_t{1} << 28;

/// Blocks of one range of memory: the smallest free one that fits (the lowest of equal ones),
/// neighbours joined when freed. Pages that have been used stay, so that a block that comes again
/// costs no page fault. The book-keeping lies outside the range, in this process. Thread-safe.
/// Asked-for bytes are booked in memory::tracker() under the caller's category.
class BlockHeap : public SymmetricMemory::Owner, public std::enable_shared_from_this<BlockHeap> {
 public:
  /// Keeps `memory`, of which [base, base + size) is handed out. `name` is for errors.
  BlockHeap(std::shared_ptr<void> memory, std::byte* base, std::size_t size, std::string name);

  /// Throws UserError when no free block is large enough.
  SymmetricMemory allocate(std::size_t bytes) { return allocate(bytes, bytes); }
  /// The same with only `booked` bytes put down.
  SymmetricMemory allocate(std::size_t bytes, std::size_t booked);
  void release(void* data) override;

  /// Whether [data, data + bytes) lies in the range.
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

  std::shared_ptr<void> memory_;
  std::byte* base_;
  std::size_t size_;
  std::string name_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;                     ///< offset -> size
  std::set<std::pair<std::size_t, std::size_t>> free_by_size_;  ///< (size, offset)
  std::map<std::size_t, Used> used_;                            ///< by offset
  std::size_t used_bytes_ = 0;
};

}  // namespace shardbench::comm
