#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace shardbench::sharding {

/// Every tensor piece in flat memory starts on this many bytes, in every strategy: the bits that
/// BLAS and fused loops give depend on alignment.
inline constexpr std::int64_t kPieceAlignment = 64;

/// `count` elements that lie at `shard_offset` of one rank's shard buffer and at `full_offset` of
/// the full buffer. Offsets and counts are in elements.
struct Segment {
  std::int64_t shard_offset = 0;
  std::int64_t full_offset = 0;
  std::int64_t count = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Which elements of a full buffer each rank keeps, and where. Parts may be uneven or empty; the
/// parts of all ranks never overlap in the full buffer. Gaps (padding) belong to nobody and are
/// never moved. Copies share their contents, so that a call can keep one cheaply.
class ShardLayout {
 public:
  ShardLayout() = default;
  /// `by_rank[r]` are rank r's segments.
  explicit ShardLayout(std::vector<std::vector<Segment>> by_rank);

  /// Parts of `counts[r]` elements, one after the other: the layout of ordinary collectives.
  static ShardLayout contiguous(const std::vector<std::int64_t>& counts);
  /// `count` elements cut into `world_size` contiguous parts as `slice_of` does.
  static ShardLayout even(std::int64_t count, int world_size, std::int64_t multiple = 1);

  int world_size() const { return parts_ ? static_cast<int>(parts_->by_rank.size()) : 0; }
  const std::vector<Segment>& segments(int rank) const { return parts_->by_rank[rank]; }
  /// The same parts where every shard lies in the full buffer itself.
  ShardLayout in_place() const;
  /// Elements that `rank` keeps.
  std::int64_t count(int rank) const { return parts_->counts[rank]; }
  /// Elements of all ranks together: the payload of a collective over this layout.
  std::int64_t total() const { return parts_ ? parts_->total : 0; }
  /// One past the last element touched in the full buffer / in `rank`'s shard buffer.
  std::int64_t full_extent() const { return parts_ ? parts_->full_extent : 0; }
  std::int64_t shard_extent(int rank) const { return parts_->shard_extents[rank]; }

 private:
  struct Parts {
    std::vector<std::vector<Segment>> by_rank;
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> shard_extents;
    std::int64_t total = 0;
    std::int64_t full_extent = 0;
  };
  std::shared_ptr<const Parts> parts_;  ///< never changes; null: no ranks
};

/// Half-open range of elements or rows.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }

  friend bool operator==(const Range&, const Range&) = default;
};

/// Rank's part when `count` items are cut into contiguous parts of ceil(count/W), rounded up to
/// `multiple`; the last ranks may have fewer or none. 5 over 4 gives 2,2,1,0.
Range slice_of(std::int64_t count, int world_size, int rank, std::int64_t multiple = 1);

/// Ranks [first_rank, last_rank] whose parts have `count` items each.
struct SliceRun {
  int first_rank = 0;
  int last_rank = 0;
  std::int64_t count = 0;

  friend bool operator==(const SliceRun&, const SliceRun&) = default;
};

/// The sizes of slice_of for all ranks, neighbours alike taken together: at most three runs (full
/// parts, what is left, nothing), whatever the world size. 5 over 4 gives 2,2 | 1 | 0.
std::vector<SliceRun> slice_runs(std::int64_t count, int world_size);

}  // namespace shardbench::sharding
