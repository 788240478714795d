#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/mpi/api.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

using ByteRange = shardbench_mpi_range;

/// How lists of segments become messages. Every rank must use the same limits.
struct MessageLimits {
  std::size_t largest = std::size_t{1} << 30;  ///< MPI counts to INT_MAX; leaves a margin
  /// A segment of at least this many bytes is a message of its own: an implementation moves one
  /// range straight to its place, but packs a list of them.
  std::size_t alone = std::size_t{256} << 10;
};

/// Which side of a segment a message reads or writes.
enum class SegmentSide { kShard, kFull };

/// Calls `use(ranges)` for each message that brings `segments`: cut by their sizes alone, so sender
/// and receiver get the same messages whichever side they have. Empty segments send nothing.
/// `scratch` is memory for the lists.
template <class Use>
void for_each_message(const std::vector<sharding::Segment>& segments, SegmentSide side,
                      std::size_t element, std::byte* base, const MessageLimits& limits,
                      std::vector<ByteRange>& scratch, const Use& use) {
  scratch.clear();
  std::size_t gathered = 0;
  const auto flush = [&] {
    if (!scratch.empty()) use(std::span<const ByteRange>(scratch));
    scratch.clear();
    gathered = 0;
  };
  for (const sharding::Segment& segment : segments) {
    const std::int64_t offset =
        side == SegmentSide::kShard ? segment.shard_offset : segment.full_offset;
    std::byte* data = base + static_cast<std::size_t>(offset) * element;
    std::size_t left = static_cast<std::size_t>(segment.count) * element;
    const bool alone = left >= limits.alone;
    if (alone || gathered + left > limits.largest) flush();
    while (left > 0) {
      const std::size_t bytes = std::min(left, limits.largest);
      scratch.push_back({data, bytes});
      gathered += bytes;
      data += bytes;
      left -= bytes;
      if (alone) flush();
    }
  }
  flush();
}

/// The elements of a list of segments, one after the other, in the full and the shard buffer: what
/// is cut into chunks in a reduction.
class Elements {
 public:
  explicit Elements(const std::vector<sharding::Segment>& segments) : segments_(segments) {}

  /// Calls `use(full_offset, shard_offset, count)` for each run of elements of [begin, end), in
  /// order.
  template <class Use>
  void for_each_run(std::int64_t begin, std::int64_t end, const Use& use) const {
    std::int64_t at = 0;  // of the segment's first element
    for (const sharding::Segment& segment : segments_) {
      const std::int64_t from = std::max(begin - at, std::int64_t{0});
      const std::int64_t to = std::min(end - at, segment.count);
      if (from < to) use(segment.full_offset + from, segment.shard_offset + from, to - from);
      at += segment.count;
      if (at >= end) return;
    }
  }

 private:
  const std::vector<sharding::Segment>& segments_;
};

}  // namespace shardbench::comm
