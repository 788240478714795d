#pragma once

#include <fmt/format.h>

#include <memory>

#include "common/comm/block_heap.h"
#include "common/comm/shm/segment.h"

namespace shardbench::comm {

/// Symmetric memory of one rank: blocks of its arena, which peers reach by their offsets.
class SymmetricHeap : public BlockHeap {
 public:
  SymmetricHeap(const std::shared_ptr<SharedSegment>& segment, int rank)
      : BlockHeap(segment, segment->arena(rank), segment->arena_bytes(),
                  fmt::format("rank {}'s arena of symmetric memory", rank)) {}
};

}  // namespace shardbench::comm
