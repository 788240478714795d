// Calls on memory that peers do not reach: chunk after chunk is put into lanes, from which peers
// sum or copy it, so that all ranks work at once on data that stay in caches.

#include "common/comm/shm/stream.h"

#include "common/comm/call_shape.h"
#include "common/comm/copy.h"
#include "common/comm/reduce.h"
#include "common/comm/segments.h"
#include "common/comm/shm/engine.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

/// A copy of what is smaller waits in one block for peers: no rank has to meet another for it.
constexpr std::size_t kSmallestStreamedBytes = std::size_t{256} << 10;

ShardLayout slices_of(const CallSpec& spec, int world_size) {
  std::vector<std::vector<Segment>> slices;
  for (int rank = 0; rank < world_size; ++rank) {
    const sharding::Range slice = all_reduce_slice(spec.count, spec.dtype, world_size, rank);
    slices.push_back({{slice.begin, slice.begin, slice.size()}});
  }
  return ShardLayout(std::move(slices));
}

/// Shards that go to all peers use their ranks' common lanes, parts of full buffers those between
/// two ranks, to one root or to all.
bool share_a_lane(const CallSpec& a, const CallSpec& b) {
  const auto spreads = [](CollectiveKind kind) {
    return !reduces(kind) || kind == CollectiveKind::kAllReduce;
  };
  const bool same_direction =
      (spreads(a.kind) && spreads(b.kind)) || (reduces(a.kind) && reduces(b.kind));
  return same_direction && !(has_root(a.kind) && has_root(b.kind) && a.root != b.root);
}

}  // namespace

std::int64_t ShmEngine::chunk_elements(const ShmCall& call) const {
  return static_cast<std::int64_t>(lanes_.chunk_bytes() / call.spec_.element_size());
}

bool ShmEngine::may_stream(const CallSpec& spec) {
  return spec.payload_bytes() >= kSmallestStreamedBytes;
}

/// Whether chunks of `peer`'s buffer come through a lane. Only once it has issued the call.
bool ShmEngine::streams_from(const ShmCall& call, int peer) const {
  return call.spec_.kind == CollectiveKind::kAllReduce ||
         segment_.entry(call.sequence_, peer).streamed != 0;
}

/// Whether this rank reads from lanes in this call, as far as is known when it may move.
bool ShmEngine::has_streamed_source(const ShmCall& call) const {
  const CallSpec& spec = call.spec_;
  if (!may_stream(spec) || (spec.kind == CollectiveKind::kReduce && rank_ != spec.root)) {
    return false;
  }
  for (int peer = 0; peer < world_size_; ++peer) {
    if (spec.kind == CollectiveKind::kBroadcast && peer != spec.root) continue;
    if (segment_.entry(call.sequence_, peer).streamed != 0) return true;
  }
  return false;
}

/// `is_source`: this rank's buffer is one that peers do not reach.
void ShmEngine::begin_stream(ShmCall& call, bool is_source) {
  const CallSpec& spec = call.spec_;
  call.stream_ = std::make_unique<Stream>();
  Stream& stream = *call.stream_;
  const auto ranks = static_cast<std::size_t>(world_size_);
  stream.to_put.resize(ranks);
  stream.to_get.resize(ranks);
  const bool is_all_reduce = spec.kind == CollectiveKind::kAllReduce;
  stream.parts = is_all_reduce ? slices_of(spec, world_size_) : spec.layout;
  const auto all_of = [&](int rank) { return SegmentCursor(stream.parts.segments(rank)); };

  for (int peer = 0; peer < world_size_; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == rank_) continue;
    switch (spec.kind) {
      case CollectiveKind::kAllGather:
        stream.to_get[at] = all_of(peer);
        break;
      case CollectiveKind::kReduceScatter:
        if (is_source) stream.to_put[at] = all_of(peer);
        break;
      case CollectiveKind::kAllReduce:
        stream.to_put[at] = all_of(peer);
        stream.to_get[at] = all_of(peer);
        break;
      case CollectiveKind::kBroadcast:
        if (peer == spec.root) stream.to_get[at] = all_of(peer);
        break;
      case CollectiveKind::kReduce:
        if (peer == spec.root && is_source) stream.to_put[at] = all_of(peer);
        break;
      case CollectiveKind::kBarrier:
        break;
    }
  }
  const bool spreads = spec.kind == CollectiveKind::kAllGather ||
                       (spec.kind == CollectiveKind::kBroadcast && rank_ == spec.root);
  if (spreads && is_source) stream.to_put[static_cast<std::size_t>(rank_)] = all_of(rank_);
  if (spreads && !is_source) {
    spread_segments(spec.layout.segments(rank_), spec.element_size(), spec.source, spec.target,
                    spec.payload_bytes());
  }
  if (reduces(spec.kind) && (spec.kind != CollectiveKind::kReduce || rank_ == spec.root)) {
    stream.to_sum = all_of(rank_);
  }
}

/// Each lane carries the calls that use it in their order.
bool ShmEngine::lanes_are_free_for(const ShmCall& call) const {
  for (const auto& earlier : pending_) {
    if (earlier.get() == &call) return true;
    const bool streams = earlier->stream_ != nullptr || may_stream(earlier->spec_);
    if (!earlier->moved_ && streams && share_a_lane(earlier->spec_, call.spec_)) return false;
  }
  return true;
}

/// Moves what can be moved without waiting for a peer.
void ShmEngine::advance_stream(ShmCall& call) {
  Stream& stream = *call.stream_;
  if (!lanes_are_free_for(call)) return;
  for (;;) {
    stream.met = stream.met || may_move(call);
    bool moves = put_chunks(call);
    if (stream.met) {
      moves = sum_chunk(call) || moves;
      moves = get_chunks(call) || moves;
    }
    if (!moves) break;
    ++stream.chunks;
    segment_.signal();
  }
  call.moved_ = stream.done();
}

/// At most one chunk for each lane, so that all readers have something to do.
bool ShmEngine::put_chunks(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t element = spec.element_size();
  bool moves = false;
  for (int step = 0; step < world_size_; ++step) {
    const int lane = (rank_ + step) % world_size_;
    SegmentCursor& cursor = call.stream_->to_put[static_cast<std::size_t>(lane)];
    std::byte* to = cursor.done() ? nullptr : lanes_.room(lane);
    if (to == nullptr) continue;
    std::int64_t staged = 0;
    cursor.next(chunk_elements(call), [&](const Segment& part) {
      const std::size_t bytes = static_cast<std::size_t>(part.count) * element;
      const std::int64_t at = lane == rank_ ? part.shard_offset : part.full_offset;
      copy_from_memory(to, spec.source + static_cast<std::size_t>(at) * element, bytes);
      if (lane == rank_) {  // this rank's own place in its full buffer, while the part is at hand
        std::byte* const own = spec.target + static_cast<std::size_t>(part.full_offset) * element;
        if (own != spec.source + static_cast<std::size_t>(at) * element) {
          copy_part(own, to, bytes, spec.payload_bytes());
        }
      }
      to += bytes;
      staged += static_cast<std::int64_t>(bytes);
    });
    count_staging(call, staged);
    lanes_.put(lane);
    moves = true;
  }
  return moves;
}

/// The next chunk of this rank's part, if every peer's share of it is there.
bool ShmEngine::sum_chunk(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  if (call.stream_->to_sum.done()) return false;
  const bool publishes = spec.kind == CollectiveKind::kAllReduce;
  std::byte* out = publishes ? lanes_.room(rank_) : nullptr;
  if (publishes && out == nullptr) return false;
  std::vector<PeerWindow> windows;  // of all ranks but this one, in order
  windows.reserve(static_cast<std::size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    if (!streams_from(call, peer)) {
      windows.push_back(window(call, peer, PeerWindow::Access::kRead));
    } else if (lanes_.holds(peer, /*common=*/false)) {
      windows.push_back(lane_window(call, peer, /*common=*/false));
    } else {
      return false;
    }
  }

  const std::size_t element = spec.element_size();
  std::size_t in_chunk = 0;
  std::vector<const void*> sources(static_cast<std::size_t>(world_size_));
  call.stream_->to_sum.next(chunk_elements(call), [&](const Segment& part) {
    const std::size_t at = static_cast<std::size_t>(part.full_offset) * element;
    const std::size_t bytes = static_cast<std::size_t>(part.count) * element;
    auto next = windows.begin();
    for (int peer = 0; peer < world_size_; ++peer) {
      sources[static_cast<std::size_t>(peer)] =
          peer == rank_ ? spec.source + at
                        : (next++)->read(streams_from(call, peer) ? in_chunk : at, bytes);
    }
    void* const targets[] = {spec.target + static_cast<std::size_t>(part.shard_offset) * element,
                             out + in_chunk};
    reduce_elements(spec.dtype, spec.op, sources, {targets, publishes ? 2u : 1u}, part.count,
                    spec.accumulate);
    in_chunk += bytes;
  });
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && streams_from(call, peer)) lanes_.take(peer, /*common=*/false);
  }
  if (publishes) {
    count_staging(call, static_cast<std::int64_t>(in_chunk));
    lanes_.put(rank_);
  }
  return true;
}

/// At most one chunk from each peer; all of a peer's part that can be read where it lies.
bool ShmEngine::get_chunks(ShmCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t element = spec.element_size();
  bool moves = false;
  for (int step = 1; step < world_size_; ++step) {
    const int peer = (rank_ + step) % world_size_;
    SegmentCursor& cursor = call.stream_->to_get[static_cast<std::size_t>(peer)];
    if (cursor.done()) continue;
    if (!streams_from(call, peer)) {
      cursor = {};
      PeerWindow shard = window(call, peer, PeerWindow::Access::kRead);
      fetch_segments(spec.layout.segments(peer), element, shard, spec.target, spec.payload_bytes());
      moves = true;
      continue;
    }
    if (!lanes_.holds(peer, /*common=*/true)) continue;
    PeerWindow chunk = lane_window(call, peer, /*common=*/true);
    std::size_t in_chunk = 0;
    cursor.next(chunk_elements(call), [&](const Segment& part) {
      const std::size_t bytes = static_cast<std::size_t>(part.count) * element;
      copy_part(spec.target + static_cast<std::size_t>(part.full_offset) * element,
                chunk.read(in_chunk, bytes), bytes, spec.payload_bytes());
      in_chunk += bytes;
    });
    lanes_.take(peer, /*common=*/true);
    moves = true;
  }
  return moves;
}

PeerWindow ShmEngine::lane_window(const ShmCall& call, int peer, bool common) {
  compare_with(call, peer);
  return lanes_.open(peer, common, {call.spec_.kind, call.spec_.phase});
}

}  // namespace shardbench::comm
