#include "common/sharding/layout.h"

#include <algorithm>

#include "common/core/error.h"

namespace shardbench::sharding {

ShardLayout::ShardLayout(std::vector<std::vector<Segment>> by_rank) {
  const auto parts = std::make_shared<Parts>();
  for (const auto& segments : by_rank) {
    std::int64_t count = 0;
    std::int64_t extent = 0;
    for (const Segment& segment : segments) {
      SHARDBENCH_CHECK_GE(segment.count, 0);
      count += segment.count;
      extent = std::max(extent, segment.shard_offset + segment.count);
      parts->full_extent = std::max(parts->full_extent, segment.full_offset + segment.count);
    }
    parts->counts.push_back(count);
    parts->shard_extents.push_back(extent);
    parts->total += count;
  }
  parts->by_rank = std::move(by_rank);
  parts_ = parts;
}

ShardLayout ShardLayout::contiguous(const std::vector<std::int64_t>& counts) {
  std::vector<std::vector<Segment>> by_rank;
  std::int64_t offset = 0;
  for (std::int64_t count : counts) {
    by_rank.push_back(count > 0 ? std::vector<Segment>{{0, offset, count}}
                                : std::vector<Segment>{});
    offset += count;
  }
  return ShardLayout(std::move(by_rank));
}

ShardLayout ShardLayout::in_place() const {
  std::vector<std::vector<Segment>> by_rank(static_cast<std::size_t>(world_size()));
  for (int rank = 0; rank < world_size(); ++rank) {
    for (const Segment& segment : segments(rank)) {
      by_rank[static_cast<std::size_t>(rank)].push_back(
          {segment.full_offset, segment.full_offset, segment.count});
    }
  }
  return ShardLayout(std::move(by_rank));
}

ShardLayout ShardLayout::even(std::int64_t count, int world_size, std::int64_t multiple) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < world_size; ++rank) {
    counts.push_back(slice_of(count, world_size, rank, multiple).size());
  }
  return contiguous(counts);
}

Range slice_of(std::int64_t count, int world_size, int rank, std::int64_t multiple) {
  SHARDBENCH_CHECK(world_size > 0 && rank >= 0 && rank < world_size && multiple > 0);
  const std::int64_t part = (count + world_size - 1) / world_size;
  const std::int64_t step = (part + multiple - 1) / multiple * multiple;
  return {std::min(count, step * rank), std::min(count, step * (rank + 1))};
}

std::vector<SliceRun> slice_runs(std::int64_t count, int world_size) {
  SHARDBENCH_CHECK(world_size > 0 && count >= 0, "{} items over {} ranks", count, world_size);
  const std::int64_t part = (count + world_size - 1) / world_size;
  const int full = part == 0 ? 0 : static_cast<int>(count / part);
  const std::int64_t rest = part == 0 ? 0 : count % part;
  std::vector<SliceRun> runs;
  if (full > 0) runs.push_back({0, full - 1, part});
  if (rest > 0) runs.push_back({full, full, rest});
  const int used = full + (rest > 0 ? 1 : 0);
  if (used < world_size) runs.push_back({used, world_size - 1, 0});
  return runs;
}

}  // namespace shardbench::sharding
