#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// One collective call of one rank.
struct CallRecord {
  std::int64_t sequence = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  Phase phase = Phase::kInit;
  std::string label;
  DType dtype = DType::kFloat32;
  std::int64_t payload_bytes = 0;  ///< the full tensor
  std::int64_t algo_bytes = 0;     ///< sent by this rank, by definition
  std::int64_t issued_ns = 0;      ///< steady clock
  std::int64_t finished_ns = 0;    ///< output complete
  std::int64_t peer_wait_ns = 0;   ///< in wait(), for peers or the emulated link
  std::int64_t move_ns = 0;        ///< in wait(), moving bytes
  Span background;                 ///< moving bytes on a thread of their own (see WorkTiming)
  std::vector<Span> blocked;
};

/// Bytes counted where they are moved, by the copying code itself.
struct WireBytes {
  std::int64_t sent = 0;  ///< left this rank's memory for a peer, whoever ran the copy
  std::int64_t received = 0;
  std::int64_t staging = 0;  ///< bounces through staging memory
};

/// Counters that a backend keeps in memory all ranks see: written by whoever copies. An element
/// (kind, phase, source, destination) counts bytes that went from source's to destination's memory.
class WireMatrix {
 public:
  virtual ~WireMatrix() = default;
  virtual std::int64_t bytes(CollectiveKind kind, Phase phase, int source,
                             int destination) const = 0;
  virtual std::int64_t staging_bytes(CollectiveKind kind, Phase phase, int rank) const = 0;
};

/// Traffic of one (phase, kind) of one rank since Recorder::reset.
struct TrafficEntry {
  Phase phase = Phase::kInit;
  CollectiveKind kind = CollectiveKind::kBarrier;
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;
  std::int64_t algo_bytes = 0;
  WireBytes wire;
};

/// Sits around any communicator (barriers are recorded but move nothing). One per rank.
class Recorder : public Communicator {
 public:
  /// Forgets all calls and takes the wire matrix's present state as zero. Every rank must have
  /// finished its calls (see quiesce).
  virtual void reset() = 0;
  virtual const std::vector<CallRecord>& calls() const = 0;
  /// Entries with at least one call, ordered by phase, then kind.
  virtual std::vector<TrafficEntry> traffic() const = 0;
  /// Time inside wait() since reset: for peers, and moving bytes. Their sum is exposed time.
  virtual std::int64_t peer_wait_ns() const = 0;
  virtual std::int64_t move_ns() const = 0;
};

/// Time covered by at least one of the spans.
std::int64_t covered_ns(std::vector<Span> spans);

/// `wire` may be null (a backend that counts nothing: wire bytes are then absent, reported as -1).
std::unique_ptr<Recorder> record(std::unique_ptr<Communicator> inner,
                                 std::shared_ptr<const WireMatrix> wire);

}  // namespace shardbench::comm
