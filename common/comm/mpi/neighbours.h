#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/mpi/options.h"
#include "common/comm/mpi/placement.h"
#include "common/comm/mpi/transport.h"
#include "common/comm/shm/peer_window.h"

namespace shardbench::comm {

/// What all hierarchical calls of one rank work on.
struct RelayGround {
  HostGrid grid;
  std::shared_ptr<SegmentJob> host_job;
  std::shared_ptr<SymmetricHeap> heap;  ///< of this rank
  MpiTransport& transport;
  const MpiOptions& options;

  int peer_at(int host, int local) const { return grid.rank_at(host, local); }
  int neighbour(int local) const { return grid.rank_at(grid.host, local); }
};

/// The ranks of one host in one call: who may reach whose memory, and when that is over. Each tells
/// the others by small messages; what they bring is an offset in shared memory. Neighbours go by
/// their numbers on the host.
class Neighbours {
 public:
  explicit Neighbours(RelayGround& ground);

  /// A new call. Its first message between two ranks is an offer, the second says that the memory
  /// is not touched any more.
  void begin(const MessageUse& offer, const MessageUse& end);

  /// `neighbour` may reach this rank's memory from `offset` of its arena on, until it says that it
  /// has ended.
  void offer(int neighbour, std::uint64_t offset);
  void expect_offer(int neighbour);
  void end(int neighbour);

  void advance();
  /// Whether all offers that this rank expects are there.
  bool offered() const { return offers_in_.done(); }
  /// Whether nobody touches what this rank has offered.
  bool ended() const { return ends_in_.done(); }
  /// Whether this rank's own messages are through.
  bool sent() const { return offers_out_.done() && ends_out_.done(); }

  /// `bytes` of the memory that `neighbour` has offered.
  PeerWindow window(int neighbour, std::size_t bytes, PeerWindow::Access access) const;

  void add_missing_offers(std::vector<bool>& peers);
  void add_missing_ends(std::vector<bool>& peers);
  void drop();

 private:
  RelayGround& ground_;
  MessageUse offer_;
  MessageUse end_;
  std::uint64_t own_offset_ = 0;
  std::vector<std::uint64_t> offsets_;  ///< by neighbour
  Messages offers_in_, offers_out_, ends_in_, ends_out_;
};

}  // namespace shardbench::comm
