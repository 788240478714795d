#pragma once

#include <cstddef>
#include <cstring>

namespace shardbench::comm {

/// From this payload on, what a call brings does not stay in the caches until it is used, and its
/// copies go past them: no cache line is read only to be overwritten. (Below, a copy that leaves
/// the data in the caches is faster together with its first use.)
inline constexpr std::size_t kStreamedPayloadBytes = std::size_t{12} << 20;
/// Parts below this one are copied in the ordinary way whatever the payload.
inline constexpr std::size_t kStreamedPartBytes = std::size_t{64} << 10;

/// memcpy with stores that do not fill the caches, of simd_width(), from four places at a time;
/// ordered before later stores of this thread. The ranges must not overlap.
void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes);

/// memcpy of what is in no cache to where it shall stay in one: reads from four places at a time.
/// The ranges must not overlap.
void copy_from_memory(std::byte* to, const std::byte* from, std::size_t bytes);

/// One part of a call with this payload. The ranges must not overlap.
inline void copy_part(std::byte* to, const std::byte* from, std::size_t bytes,
                      std::size_t payload_bytes) {
  if (payload_bytes >= kStreamedPayloadBytes && bytes >= kStreamedPartBytes) {
    copy_streamed(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace shardbench::comm
