#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/call_spec.h"

namespace shardbench::comm {

/// A run of elements of rank `owner` that is contiguous in its shard and in the full buffer.
struct NcclPiece {
  int owner = 0;
  std::int64_t shard_offset = 0;
  std::int64_t full_offset = 0;
  std::int64_t count = 0;

  friend bool operator==(const NcclPiece&, const NcclPiece&) = default;
};

/// Bytes [begin, end) of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// One collective as one rank sees it, cut into what NCCL can move.
struct NcclPlan {
  std::vector<NcclPiece> pieces;   ///< of all ranks by rank, or of the root; none for all_reduce
  bool even = false;               ///< NCCL's own all-gather and reduce-scatter fit
  std::int64_t own_count = 0;      ///< elements of this rank's pieces
  std::int64_t source_extent = 0;  ///< elements of the source that are read; 0: it has no part
  std::int64_t target_extent = 0;
};

/// Neighbouring segments are joined, empty ones left out. `even`: one piece of equal size per rank,
/// one after the other in the full buffer; every rank finds the same.
NcclPlan plan_of(const CallSpec& spec, int rank);

/// Which bytes of the target the call writes.
std::vector<ByteRange> result_ranges(const CallSpec& spec, const NcclPlan& plan, int rank);

constexpr std::size_t bytes_of(const CallSpec& spec, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * size_of(spec.dtype);
}

/// Whether the results lie in the full buffer: all_gather and broadcast.
constexpr bool spreads(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kBroadcast;
}

}  // namespace shardbench::comm
