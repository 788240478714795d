#include "common/comm/plain_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/comm/block_heap.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

/// A range of addresses; pages come when they are touched.
class Range {
 public:
  Range() {
    for (bytes_ = kLargestArena; bytes_ >= kSmallestArena; bytes_ /= 2) {
      base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base_ == MAP_FAILED) continue;
      madvise(base_, bytes_, MADV_DONTDUMP);
      return;
    }
    throw UserError::format("cannot map memory: {} (see ulimit -v)", std::strerror(errno));
  }
  ~Range() { munmap(base_, bytes_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  std::byte* base() const { return static_cast<std::byte*>(base_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* base_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

BlockHeap& heap() {
  static const std::shared_ptr<BlockHeap> instance = [] {
    const auto range = std::make_shared<Range>();
    return std::make_shared<BlockHeap>(range, range->base(), range->bytes(),
                                       "this process's memory for messages");
  }();
  return *instance;
}

}  // namespace

SymmetricMemory plain_memory(std::size_t bytes, memory::Category category) {
  return plain_memory(bytes, bytes, category);
}

SymmetricMemory plain_memory(std::size_t bytes, std::size_t booked, memory::Category category) {
  const memory::CategoryScope scope(category);
  return heap().allocate(bytes, booked);
}

}  // namespace shardbench::comm
