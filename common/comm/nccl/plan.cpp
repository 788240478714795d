#include "common/comm/nccl/plan.h"

namespace shardbench::comm {
namespace {

void add_pieces(const sharding::ShardLayout& layout, int rank, std::vector<NcclPiece>& pieces) {
  const std::size_t first = pieces.size();
  for (const sharding::Segment& segment : layout.segments(rank)) {
    if (segment.count == 0) continue;
    if (pieces.size() > first) {
      NcclPiece& last = pieces.back();
      if (last.shard_offset + last.count == segment.shard_offset &&
          last.full_offset + last.count == segment.full_offset) {
        last.count += segment.count;
        continue;
      }
    }
    pieces.push_back({rank, segment.shard_offset, segment.full_offset, segment.count});
  }
}

bool is_even(const std::vector<NcclPiece>& pieces, int world_size) {
  if (pieces.size() != static_cast<std::size_t>(world_size)) return false;
  const NcclPiece& first = pieces.front();
  for (int rank = 0; rank < world_size; ++rank) {
    const NcclPiece& piece = pieces[static_cast<std::size_t>(rank)];
    if (piece.owner != rank || piece.count != first.count ||
        piece.full_offset != first.full_offset + rank * first.count) {
      return false;
    }
  }
  return true;
}

}  // namespace

NcclPlan plan_of(const CallSpec& spec, int rank) {
  NcclPlan plan;
  if (spec.kind == CollectiveKind::kBarrier) return plan;
  if (spec.kind == CollectiveKind::kAllReduce) {
    plan.source_extent = spec.count;
    plan.target_extent = spec.count;
    return plan;
  }
  const sharding::ShardLayout& layout = spec.layout;
  const bool has_shard = !has_root(spec.kind) || spec.root == rank;
  if (has_root(spec.kind)) {
    add_pieces(layout, spec.root, plan.pieces);
  } else {
    for (int owner = 0; owner < layout.world_size(); ++owner) {
      add_pieces(layout, owner, plan.pieces);
    }
    plan.even = is_even(plan.pieces, layout.world_size());
  }
  const std::int64_t shard = has_shard ? layout.shard_extent(rank) : 0;
  plan.own_count = has_shard ? layout.count(rank) : 0;
  plan.source_extent = spreads(spec.kind) ? shard : layout.full_extent();
  plan.target_extent = spreads(spec.kind) ? layout.full_extent() : shard;
  return plan;
}

std::vector<ByteRange> result_ranges(const CallSpec& spec, const NcclPlan& plan, int rank) {
  if (spec.kind == CollectiveKind::kAllReduce) return {{0, bytes_of(spec, spec.count)}};
  std::vector<ByteRange> ranges;
  for (const NcclPiece& piece : plan.pieces) {
    if (!spreads(spec.kind) && piece.owner != rank) continue;
    const std::int64_t begin = spreads(spec.kind) ? piece.full_offset : piece.shard_offset;
    ranges.push_back({bytes_of(spec, begin), bytes_of(spec, begin + piece.count)});
  }
  return ranges;
}

}  // namespace shardbench::comm
