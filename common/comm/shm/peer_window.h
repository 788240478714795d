#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/shm/segment_job.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// What a counted access is booked under.
struct WireTag {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Phase phase = Phase::kInit;
};

/// The only way to a peer's memory: opens a part of its arena and counts every byte that is read
/// from or written to it in the job's wire matrix. With guarded peers that part is readable (and
/// writable, if asked for) only while the window lives.
class PeerWindow {
 public:
  enum class Access { kRead, kReadWrite };

  PeerWindow(SegmentJob& job, WireTag tag, int self, int peer, std::uint64_t offset,
             std::size_t bytes, Access access);
  PeerWindow(PeerWindow&& other) noexcept;
  PeerWindow& operator=(PeerWindow&&) = delete;
  ~PeerWindow();

  /// The peer's bytes [at, at + bytes), which the caller reads: they travel peer -> self.
  const std::byte* read(std::size_t at, std::size_t bytes);
  /// The peer's bytes [at, at + bytes), which the caller overwrites: self -> peer.
  std::byte* write(std::size_t at, std::size_t bytes);

 private:
  void protect(int protection) const;

  SegmentJob* job_;
  WireTag tag_;
  int self_;
  int peer_;
  std::byte* data_;
  std::size_t bytes_;
  Access access_;
  std::int64_t read_bytes_ = 0;
  std::int64_t written_bytes_ = 0;
};

/// full[a peer's segments] = the peer's shard. `payload_bytes`: of the whole call.
void fetch_segments(const std::vector<sharding::Segment>& segments, std::size_t element,
                    PeerWindow& peer, std::byte* full, std::size_t payload_bytes);

}  // namespace shardbench::comm
