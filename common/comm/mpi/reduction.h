#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/mpi/ranges.h"
#include "common/comm/mpi/staging_pool.h"
#include "common/comm/mpi/transport.h"

namespace shardbench::comm {

/// The elements of one rank that every peer sends and that are summed there: chunk by chunk, so
/// that staging is bounded and the next chunk travels while one is summed.
class Reduction {
 public:
  /// `own`: this rank's elements; full_offset into spec.source, shard_offset into spec.target.
  Reduction(const CallSpec& spec, std::vector<sharding::Segment> own, std::int64_t chunk_elements,
            const MpiTransport& transport, StagingPool& pool);

  /// Asks for the first chunks.
  void start(MpiTransport& transport, const MessageUse& use);
  /// Looks for chunks. True when there is one to sum.
  bool advance(MpiTransport& transport, const MessageUse& use);
  /// Sums the chunk that is there; gives its elements [begin, end), counted over `own`. Then asks
  /// for the one after the next.
  sharding::Range sum(const CallSpec& spec, MpiTransport& transport, const MessageUse& use);

  bool done() const { return summed_ == chunks_; }
  /// Peers whose part of the next chunk has not come.
  void add_missing(std::vector<bool>& peers) const;
  void drop(MpiTransport& transport);
  SymmetricMemory take_staging() { return std::move(staging_); }
  const std::vector<sharding::Segment>& own() const { return own_; }

 private:
  static constexpr std::int64_t kSlots = 2;

  void ask(std::int64_t chunk, MpiTransport& transport, const MessageUse& use);
  sharding::Range range_of(std::int64_t chunk) const;
  std::byte* staged(std::int64_t chunk, int peer) const;

  std::vector<sharding::Segment> own_;
  std::int64_t total_ = 0;
  std::int64_t chunk_elements_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t summed_ = 0;
  std::size_t slot_bytes_ = 0;  ///< of one peer
  int rank_;
  int world_size_;
  std::array<Messages, kSlots> incoming_;
  SymmetricMemory staging_;
};

}  // namespace shardbench::comm
