#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "common/comm/plain_memory.h"

namespace shardbench::comm {

/// Blocks in which peers' values wait for being summed. Kept for the next call: fresh memory costs
/// a page fault every 4 KiB. Used by one thread at a time.
class StagingPool {
 public:
  SymmetricMemory take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, kSmallest));
    const auto fits = [&](const SymmetricMemory& block) { return block.bytes() == size; };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    if (found == free_.end()) return plain_memory(size, memory::Category::kCommBuffer);
    SymmetricMemory block = std::move(*found);
    std::swap(*found, free_.back());
    free_.pop_back();
    return block;
  }

  void give_back(SymmetricMemory block) {
    if (block.data() != nullptr && free_.size() < kMostFree) free_.push_back(std::move(block));
  }

  void clear() { free_.clear(); }

 private:
  static constexpr std::size_t kSmallest = 4096;
  static constexpr std::size_t kMostFree = 4;
  std::vector<SymmetricMemory> free_;
};

}  // namespace shardbench::comm
