#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/comm/reduce.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// full[segments] = shard[segments], in this rank's own memory. Where both are the same memory
/// nothing is copied.
inline void spread_segments(const std::vector<sharding::Segment>& segments, std::size_t element,
                            const std::byte* shard, std::byte* full) {
  for (const sharding::Segment& segment : segments) {
    const std::byte* from = shard + static_cast<std::size_t>(segment.shard_offset) * element;
    std::byte* to = full + static_cast<std::size_t>(segment.full_offset) * element;
    if (from != to) std::memmove(to, from, static_cast<std::size_t>(segment.count) * element);
  }
}

}  // namespace shardbench::comm
