#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/sharding/layout.h"

namespace shardbench::comm {

/// Goes through the elements of some segments, in their order, a number of elements at a time.
class SegmentCursor {
 public:
  SegmentCursor() = default;
  /// Keeps a reference.
  explicit SegmentCursor(const std::vector<sharding::Segment>& segments) : segments_(&segments) {
    skip_empty();
  }

  bool done() const { return segments_ == nullptr || index_ == segments_->size(); }

  /// Calls `use(segment)` for what lies within the next `elements`, or for what is left.
  template <class Use>
  void next(std::int64_t elements, const Use& use) {
    while (elements > 0 && !done()) {
      const sharding::Segment& segment = (*segments_)[index_];
      const std::int64_t count = std::min(elements, segment.count - offset_);
      use(sharding::Segment{segment.shard_offset + offset_, segment.full_offset + offset_, count});
      elements -= count;
      offset_ += count;
      if (offset_ == segment.count) {
        offset_ = 0;
        ++index_;
        skip_empty();
      }
    }
  }

 private:
  void skip_empty() {
    while (!done() && (*segments_)[index_].count == 0) ++index_;
  }

  const std::vector<sharding::Segment>* segments_ = nullptr;
  std::size_t index_ = 0;
  std::int64_t offset_ = 0;
};

/// How far one rank has come with a call some of whose bytes travel through lanes. A cursor of
/// nothing is done from the start.
struct Stream {
  sharding::ShardLayout parts;        ///< of each rank: what it contributes, or what it reduces
  std::vector<SegmentCursor> to_put;  ///< by lane
  std::vector<SegmentCursor> to_get;  ///< by source, into this rank's full buffer
  SegmentCursor to_sum;               ///< into this rank's part
  bool met = false;                   ///< peers' buffers are known
  std::int64_t chunks = 0;            ///< rounds in which some came or went

  bool done() const {
    const auto is_done = [](const SegmentCursor& cursor) { return cursor.done(); };
    return met && to_sum.done() && std::all_of(to_put.begin(), to_put.end(), is_done) &&
           std::all_of(to_get.begin(), to_get.end(), is_done);
  }
};

}  // namespace shardbench::comm
