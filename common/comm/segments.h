#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/copy.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// full[segments] = shard[segments], in this rank's own memory. Where both are the same memory
/// nothing is copied. `payload_bytes`: of the whole call.
inline void spread_segments(const std::vector<sharding::Segment>& segments, std::size_t element,
                            const std::byte* shard, std::byte* full, std::size_t payload_bytes) {
  for (const sharding::Segment& segment : segments) {
    const std::byte* from = shard + static_cast<std::size_t>(segment.shard_offset) * element;
    std::byte* to = full + static_cast<std::size_t>(segment.full_offset) * element;
    if (from == to) continue;
    copy_part(to, from, static_cast<std::size_t>(segment.count) * element, payload_bytes);
  }
}

}  // namespace shardbench::comm
