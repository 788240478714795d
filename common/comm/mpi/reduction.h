#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
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
  /// Begins anew and asks for the first chunks. `own`: this rank's elements; full_offset into
  /// spec.source, shard_offset into spec.target.
  void start(const CallSpec& spec, std::span<const sharding::Segment> own,
             std::int64_t chunk_elements, MpiTransport& transport, const MessageUse& use,
             StagingPool& pool);
  /// Looks for chunks. True when there is one to sum.
  bool advance(MpiTransport& transport, const MessageUse& use);
  /// Sums the chunk that is there; gives its elements [begin, end), counted over `own`. Then asks
  /// for the one after the next.
  sharding::Range sum(const CallSpec& spec, MpiTransport& transport, const MessageUse& use);

  /// Of all elements that this rank sums.
  std::size_t bytes() const { return bytes_; }
  bool done() const { return summed_ == chunks_; }
  /// Notes the peers whose part of the next chunk has not come.
  void add_missing(MpiTransport& transport, const MessageUse& use, std::vector<bool>& peers);
  void drop(MpiTransport& transport);
  SymmetricMemory take_staging() { return std::exchange(staging_, {}); }
  /// Offset in the full buffer of this rank's first element.
  std::int64_t full_offset() const { return own_.front().full_offset; }

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
  std::size_t bytes_ = 0;
  std::size_t slot_bytes_ = 0;  ///< of one peer
  int rank_ = 0;
  int world_size_ = 1;
  std::array<Messages, kSlots> incoming_;
  SymmetricMemory staging_;
  std::vector<const void*> sources_;  ///< by rank, of one run of elements
};

}  // namespace shardbench::comm
