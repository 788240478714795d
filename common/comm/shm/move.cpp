#include "common/comm/call_shape.h"
#include "common/comm/copy.h"
#include "common/comm/reduce.h"
#include "common/comm/segments.h"
#include "common/comm/shm/engine.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using sharding::Range;
using sharding::Segment;
using sharding::ShardLayout;

std::size_t to_bytes(std::int64_t elements, std::size_t element) {
  return static_cast<std::size_t>(elements) * element;
}

}  // namespace

/// One past the last byte of what `rank` puts in, from the start of its buffer.
std::size_t ShmEngine::source_bytes(const CallSpec& spec, int rank) const {
  switch (spec.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      return to_bytes(spec.layout.shard_extent(rank), spec.element_size());
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduce:
      return to_bytes(spec.layout.full_extent(), spec.element_size());
    case CollectiveKind::kAllReduce:
      return to_bytes(spec.count, spec.element_size());
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

PeerWindow ShmEngine::window(const ShmCall& call, int peer, PeerWindow::Access access) {
  compare_with(call, peer);
  return PeerWindow(*job_, {call.spec_.kind, call.spec_.phase}, rank_, peer,
                    segment_.entry(call.sequence_, peer).offset, source_bytes(call.spec_, peer),
                    access);
}

void ShmEngine::count_staging(const ShmCall& call, std::int64_t bytes) {
  segment_.staging(call.spec_.kind, call.spec_.phase, rank_)
      .fetch_add(bytes, std::memory_order_relaxed);
}

void ShmEngine::stage_range(ShmCall& call, std::int64_t begin, std::int64_t count) {
  if (count == 0) return;
  const std::size_t element = call.spec_.element_size();
  copy_part(static_cast<std::byte*>(call.staging_.data()) + to_bytes(begin, element),
            call.spec_.source + to_bytes(begin, element), to_bytes(count, element),
            call.spec_.payload_bytes());
  count_staging(call, count * static_cast<std::int64_t>(element));
}

/// Where peers find this rank's source. One that lies elsewhere goes through lanes; a small one is
/// copied to a block of the arena (only what peers will read), which stays until all have finished.
ShmEngine::Source ShmEngine::stage(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t bytes = source_bytes(spec, rank_);
  const bool rooted =
      spec.kind == CollectiveKind::kReduce || spec.kind == CollectiveKind::kBroadcast;
  // Peers read the root's shard of a broadcast, and everybody's but the root's in a reduce.
  const bool is_read = !rooted || (rank_ == spec.root) == (spec.kind == CollectiveKind::kBroadcast);
  if (bytes == 0 || world_size_ == 1 || !is_read) return {};
  if (heap_->contains(spec.source, bytes)) return {heap_->offset_of(spec.source)};
  if (may_stream(spec)) return {.streamed = true};
  {
    const memory::CategoryScope scope(memory::Category::kCommBuffer);
    call.staging_ = heap_->allocate(bytes);
  }
  const ShardLayout& layout = spec.layout;
  switch (spec.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      for (const Segment& s : layout.segments(rank_)) stage_range(call, s.shard_offset, s.count);
      break;
    case CollectiveKind::kReduce:
      for (const Segment& s : layout.segments(spec.root)) stage_range(call, s.full_offset, s.count);
      break;
    case CollectiveKind::kReduceScatter:
      for (int peer = 0; peer < world_size_; ++peer) {
        if (peer == rank_) continue;
        for (const Segment& s : layout.segments(peer)) stage_range(call, s.full_offset, s.count);
      }
      break;
    case CollectiveKind::kAllReduce: {
      const Range own = all_reduce_slice(spec.count, spec.dtype, world_size_, rank_);
      stage_range(call, 0, own.begin);
      stage_range(call, own.end, spec.count - own.end);
      break;
    }
    case CollectiveKind::kBarrier:
      break;
  }
  return {heap_->offset_of(call.staging_.data())};
}

/// Brings an all_reduce's result back from where peers could write it.
void ShmEngine::unstage(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t element = spec.element_size();
  const Range own = all_reduce_slice(spec.count, spec.dtype, world_size_, rank_);
  const auto* staged = static_cast<const std::byte*>(call.staging_.data());
  for (const Range part : {Range{0, own.begin}, Range{own.end, spec.count}}) {
    if (part.size() == 0) continue;
    copy_part(spec.target + to_bytes(part.begin, element), staged + to_bytes(part.begin, element),
              to_bytes(part.size(), element), spec.payload_bytes());
    count_staging(call, part.size() * static_cast<std::int64_t>(element));
  }
}

void ShmEngine::move(ShmCall& call) {
  switch (call.spec_.kind) {
    case CollectiveKind::kAllGather:
      return move_all_gather(call);
    case CollectiveKind::kReduceScatter:
      return move_reduction(call);
    case CollectiveKind::kReduce:
      if (rank_ == call.spec_.root) move_reduction(call);
      return;
    case CollectiveKind::kAllReduce:
      return move_all_reduce(call);
    case CollectiveKind::kBroadcast:
      return move_broadcast(call);
    case CollectiveKind::kBarrier:
      return;
  }
}

void ShmEngine::move_all_gather(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t payload = spec.payload_bytes();
  spread_segments(spec.layout.segments(rank_), spec.element_size(), spec.source, spec.target,
                  payload);
  // Each rank starts with its successor, so that they do not all read the same shard at once.
  for (int step = 1; step < world_size_; ++step) {
    const int peer = (rank_ + step) % world_size_;
    if (spec.layout.count(peer) == 0) continue;
    PeerWindow shard = window(call, peer, PeerWindow::Access::kRead);
    fetch_segments(spec.layout.segments(peer), spec.element_size(), shard, spec.target, payload);
  }
}

void ShmEngine::move_broadcast(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::vector<Segment>& segments = spec.layout.segments(spec.root);
  if (rank_ == spec.root) {
    spread_segments(segments, spec.element_size(), spec.source, spec.target, spec.payload_bytes());
  } else if (spec.layout.count(spec.root) > 0) {
    PeerWindow shard = window(call, spec.root, PeerWindow::Access::kRead);
    fetch_segments(segments, spec.element_size(), shard, spec.target, spec.payload_bytes());
  }
}

/// This rank's segments of every full buffer are reduced into its shard.
void ShmEngine::move_reduction(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  if (spec.layout.count(rank_) == 0) return;
  const std::size_t element = spec.element_size();
  std::vector<PeerWindow> windows;  // of all ranks but this one, in order
  windows.reserve(static_cast<std::size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_) windows.push_back(window(call, peer, PeerWindow::Access::kRead));
  }
  std::vector<const void*> sources(static_cast<std::size_t>(world_size_));
  for (const Segment& segment : spec.layout.segments(rank_)) {
    const std::size_t at = to_bytes(segment.full_offset, element);
    const std::size_t bytes = to_bytes(segment.count, element);
    if (bytes == 0) continue;
    auto next = windows.begin();
    for (int peer = 0; peer < world_size_; ++peer) {
      sources[static_cast<std::size_t>(peer)] =
          peer == rank_ ? spec.source + at : (next++)->read(at, bytes);
    }
    void* const target = spec.target + to_bytes(segment.shard_offset, element);
    reduce_elements(spec.dtype, spec.op, sources, {&target, 1}, segment.count, spec.accumulate);
  }
}

/// This rank's slice of everybody's data is reduced and written back to everybody in one pass.
void ShmEngine::move_all_reduce(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const Range slice = all_reduce_slice(spec.count, spec.dtype, world_size_, rank_);
  if (slice.size() == 0) return;
  const std::size_t at = to_bytes(slice.begin, spec.element_size());
  const std::size_t bytes = to_bytes(slice.size(), spec.element_size());
  std::vector<PeerWindow> windows;
  windows.reserve(static_cast<std::size_t>(world_size_));
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) {
      sources.push_back(spec.target + at);
      targets.push_back(spec.target + at);
      continue;
    }
    windows.push_back(window(call, peer, PeerWindow::Access::kReadWrite));
    sources.push_back(windows.back().read(at, bytes));
    targets.push_back(windows.back().write(at, bytes));
  }
  reduce_elements(spec.dtype, spec.op, sources, targets, slice.size(), false);
}

}  // namespace shardbench::comm
