#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/shm/heap.h"
#include "common/comm/shm/peer_window.h"
#include "common/comm/shm/segment_job.h"

namespace shardbench::comm {

/// The way of bytes whose reader cannot reach the memory they lie in: rings of chunks in the
/// sender's arena, small enough to stay in caches. Every rank has one lane to each peer and one,
/// with its own number, that all peers read. Positions only grow, across calls; whoever uses a lane
/// knows from the call what its next chunk is.
class Lanes {
 public:
  Lanes(SegmentJob& job, SymmetricHeap& heap, int rank);

  /// The longest chunk: fewer bytes with more ranks, so that a rank's rings stay as small.
  std::size_t chunk_bytes() const { return chunk_bytes_; }

  /// Where this rank's next chunk goes that `lane` carries; null while readers are behind.
  std::byte* room(int lane);
  /// Hands what has been written there to the lane's readers.
  void put(int lane);

  /// Whether the next chunk of `source`'s lane is there: the one to this rank, or the common one.
  bool holds(int source, bool common) const;
  /// That chunk, to be read under `tag`.
  PeerWindow open(int source, bool common, WireTag tag) const;
  /// Lets the source overwrite it.
  void take(int source, bool common);

 private:
  static constexpr std::size_t kRingsBytes = std::size_t{4} << 20;  ///< of a rank
  static constexpr std::size_t kChunksPerLane = 8;

  std::size_t place(int lane, std::uint64_t position) const {
    const std::size_t chunk = static_cast<std::size_t>(lane) * kChunksPerLane +
                              static_cast<std::size_t>(position % kChunksPerLane);
    return chunk * chunk_bytes_;
  }
  int lane_of(int source, bool common) const { return common ? source : rank_; }
  void make_rings();

  SegmentJob& job_;
  SharedSegment& segment_;
  SymmetricHeap& heap_;
  int rank_;
  int world_size_;
  std::size_t chunk_bytes_;
  SymmetricMemory rings_;           ///< of all lanes, one after the other; made when first used
  std::vector<std::uint64_t> put_;  ///< chunks so far, by lane
  std::vector<std::array<std::uint64_t, 2>> taken_;  ///< by source; of its common lane second
};

}  // namespace shardbench::comm
