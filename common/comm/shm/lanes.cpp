#include "common/comm/shm/lanes.h"

#include <bit>

#include "common/memory/category.h"

namespace shardbench::comm {

Lanes::Lanes(SegmentJob& job, SymmetricHeap& heap, int rank)
    : job_(job),
      segment_(job.segment()),
      heap_(heap),
      rank_(rank),
      world_size_(job.world_size()),
      chunk_bytes_(kRingsBytes / kChunksPerLane /
                   std::bit_ceil(static_cast<unsigned>(world_size_))),
      put_(static_cast<std::size_t>(world_size_)),
      taken_(static_cast<std::size_t>(world_size_)) {
  // A communicator before this one may have used them.
  for (int peer = 0; peer < world_size_; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    put_[at] = segment_.lane_put(rank, peer).load();
    for (const bool common : {false, true}) {
      taken_[at][common ? 1 : 0] = segment_.lane_taken(peer, rank, common).load();
    }
  }
}

std::byte* Lanes::room(int lane) {
  const std::uint64_t position = put_[static_cast<std::size_t>(lane)];
  const bool common = lane == rank_;
  for (int reader = 0; reader < world_size_; ++reader) {
    if (reader == rank_ || (!common && reader != lane)) continue;
    const std::uint64_t taken =
        segment_.lane_taken(rank_, reader, common).load(std::memory_order_acquire);
    if (position - taken >= kChunksPerLane) return nullptr;
  }
  if (rings_.data() == nullptr) make_rings();
  return static_cast<std::byte*>(rings_.data()) + place(lane, position);
}

void Lanes::put(int lane) {
  const std::uint64_t position = ++put_[static_cast<std::size_t>(lane)];
  segment_.lane_put(rank_, lane).store(position, std::memory_order_release);
}

bool Lanes::holds(int source, bool common) const {
  const std::uint64_t put =
      segment_.lane_put(source, lane_of(source, common)).load(std::memory_order_acquire);
  return put > taken_[static_cast<std::size_t>(source)][common ? 1 : 0];
}

PeerWindow Lanes::open(int source, bool common, WireTag tag) const {
  const std::uint64_t position = taken_[static_cast<std::size_t>(source)][common ? 1 : 0];
  const std::size_t at = place(lane_of(source, common), position);
  return {job_,
          tag,
          rank_,
          source,
          segment_.rank(source).lanes.load(std::memory_order_relaxed) + at,
          chunk_bytes_,
          PeerWindow::Access::kRead};
}

void Lanes::take(int source, bool common) {
  const std::uint64_t position = ++taken_[static_cast<std::size_t>(source)][common ? 1 : 0];
  segment_.lane_taken(source, rank_, common).store(position, std::memory_order_release);
}

void Lanes::make_rings() {
  const memory::CategoryScope scope(memory::Category::kCommBuffer);
  rings_ = heap_.allocate(static_cast<std::size_t>(world_size_) * kChunksPerLane * chunk_bytes_);
  // Readers get to it after a put, which comes later.
  segment_.rank(rank_).lanes.store(heap_.offset_of(rings_.data()), std::memory_order_relaxed);
}

}  // namespace shardbench::comm
