#include "common/comm/copy.h"
#include "common/comm/mpi/relay.h"
#include "common/comm/segments.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;

std::size_t full_bytes(const CallSpec& spec) {
  return static_cast<std::size_t>(spec.layout.full_extent()) * spec.element_size();
}

std::size_t payload_bytes(const CallSpec& spec) {
  return static_cast<std::size_t>(spec.count) * spec.element_size();
}

}  // namespace

RelayedSpread::RelayedSpread(RelayGround& ground)
    : Relay(ground), parts_(static_cast<std::size_t>(ground.grid.hosts)) {}

void RelayedSpread::post(const CallSpec& spec) {
  const HostGrid& grid = ground_.grid;
  const bool rooted = spec.kind == CollectiveKind::kBroadcast;
  const int own = ground_.transport.rank();
  sends_.clear();
  part_count_ = handed_on_ = 0;
  const auto add_part = [&](int owner) {
    Part& part = parts_[part_count_++];
    part.owner = owner;
    part.receives.clear();
    if (owner == own) return;
    for_each_message(spec.layout.segments(owner), SegmentSide::kFull, spec.element_size(),
                     spec.target, ground_.options.limits, scratch_, [&](auto ranges) {
                       part.receives.add(ground_.transport.receive(owner, use_, ranges));
                     });
  };
  int relay = -1;  // the neighbour that hands everything on, of a broadcast
  if (rooted) {
    for (int host = 0; host < grid.hosts; ++host) {
      for (int local = 0; local < grid.per_host; ++local) {
        if (grid.rank_at(host, local) == spec.root) relay = local;
      }
    }
    if (relay == grid.local) add_part(spec.root);
  } else {
    // Own part first, then those of the hosts that begin with this one.
    for (int step = 0; step < grid.hosts; ++step) {
      add_part(grid.rank_at((grid.host - step + grid.hosts) % grid.hosts, grid.local));
    }
  }
  if (!rooted || spec.root == own) post_sends(spec);
  std::uint64_t offset = 0;
  if (!rooted || relay != grid.local) offset = reachable(spec.target, full_bytes(spec));
  for (int step = 1; step < grid.per_host; ++step) {
    const int other = (grid.local + step) % grid.per_host;
    if (part_count_ > 0) neighbours_.expect_offer(other);
    if (!rooted || other == relay) neighbours_.offer(other, offset);
  }
}

/// This rank's shard to the other ranks of its column, each starting with the next host.
void RelayedSpread::post_sends(const CallSpec& spec) {
  const HostGrid& grid = ground_.grid;
  const std::vector<Segment>& segments = spec.layout.segments(ground_.transport.rank());
  for_each_message(segments, SegmentSide::kShard, spec.element_size(),
                   const_cast<std::byte*>(spec.source), ground_.options.limits, scratch_,
                   [&](auto ranges) {
                     for (int step = 1; step < grid.hosts; ++step) {
                       const int peer = grid.rank_at((grid.host + step) % grid.hosts, grid.local);
                       sends_.add(ground_.transport.send(peer, use_, ranges));
                     }
                   });
  spread_segments(segments, spec.element_size(), spec.source, spec.target, payload_bytes(spec));
}

bool RelayedSpread::move(const CallSpec& spec) {
  for (; handed_on_ < part_count_; ++handed_on_) {
    Part& part = parts_[handed_on_];
    if (!part.receives.advance(ground_.transport, use_)) return false;
    hand_on(spec, part.owner);
  }
  return true;
}

/// A shard to the full buffers of this rank's neighbours: from where it was put in or has come to.
void RelayedSpread::hand_on(const CallSpec& spec, int owner) {
  const std::size_t element = spec.element_size();
  if (spec.layout.count(owner) == 0) return;
  const bool is_own = owner == ground_.transport.rank();
  for (int step = 1; step < ground_.grid.per_host; ++step) {
    const int other = (ground_.grid.local + step) % ground_.grid.per_host;
    PeerWindow full = neighbours_.window(other, full_bytes(spec), PeerWindow::Access::kReadWrite);
    for (const Segment& segment : spec.layout.segments(owner)) {
      const std::size_t at = static_cast<std::size_t>(segment.full_offset) * element;
      const std::size_t bytes = static_cast<std::size_t>(segment.count) * element;
      if (bytes == 0) continue;
      const std::byte* const from =
          is_own ? spec.source + static_cast<std::size_t>(segment.shard_offset) * element
                 : spec.target + at;
      copy_part(full.write(at, bytes), from, bytes, payload_bytes(spec));
    }
  }
}

void RelayedSpread::end_all() {
  for (int step = 1; part_count_ > 0 && step < ground_.grid.per_host; ++step) {
    neighbours_.end((ground_.grid.local + step) % ground_.grid.per_host);
  }
}

/// What neighbours have brought: the shards of their columns.
void RelayedSpread::unstage(const CallSpec& spec) {
  const HostGrid& grid = ground_.grid;
  const std::size_t element = spec.element_size();
  const bool rooted = spec.kind == CollectiveKind::kBroadcast;
  for (int host = 0; host < grid.hosts; ++host) {
    for (int local = 0; local < grid.per_host; ++local) {
      const int owner = grid.rank_at(host, local);
      if (local == grid.local || (rooted && owner != spec.root)) continue;
      for (const Segment& segment : spec.layout.segments(owner)) {
        const std::size_t at = static_cast<std::size_t>(segment.full_offset) * element;
        const std::size_t bytes = static_cast<std::size_t>(segment.count) * element;
        copy_part(spec.target + at, staging() + at, bytes, payload_bytes(spec));
        count_staging(bytes);
      }
    }
  }
}

void RelayedSpread::add_missing(std::vector<bool>& peers) {
  Relay::add_missing(peers);
  for (std::size_t i = handed_on_; i < part_count_; ++i) {
    parts_[i].receives.add_missing(ground_.transport, use_, peers);
  }
}

void RelayedSpread::drop() {
  Relay::drop();
  sends_.drop(ground_.transport);
  for (std::size_t i = 0; i < part_count_; ++i) parts_[i].receives.drop(ground_.transport);
}

}  // namespace shardbench::comm
