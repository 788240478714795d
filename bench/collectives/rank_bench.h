#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "bench/collectives/case.h"
#include "common/comm/communicator.h"
#include "common/comm/recorder.h"
#include "common/sharding/layout.h"

namespace shardbench::bench {

/// One row on one rank, out-of-place or in-place.
struct RankMeasure {
  double time_us = 0;           ///< mean over the iterations
  std::int64_t wrong = 0;       ///< elements of this rank's output, over all checked calls
  std::int64_t wire_bytes = 0;  ///< sent by this rank in one call; -1: the backend counts nothing
};

/// Called with the rank's output before it is checked; may spoil it. For tests.
using Spoil = std::function<void(const CollectiveCase& row, std::span<std::byte> output)>;

/// Measures rows on one rank; every rank has one and calls measure() with the same rows. Buffers
/// are made once, for the largest row.
///
/// Out-of-place: input and output are different memory. In-place as in nccl-tests: the own part of
/// all_gather and reduce_scatter lies in the full buffer, broadcast and reduce have one buffer at
/// the root. all_reduce always works in place, so its out-of-place time has a copy of the input.
class RankBench {
 public:
  /// `wire` counts what the communicator's backend moves, null where it does not. Both must outlive
  /// this.
  RankBench(comm::Communicator& comm, const comm::WireMatrix* wire,
            const CollectivesRequest& request, Spoil spoil = {});
  ~RankBench();

  RankMeasure measure(const CollectiveCase& row, bool in_place);

 private:
  struct Memory;

  comm::Work issue();
  void copy_input();
  void set_up(const CollectiveCase& row, bool in_place);
  /// Checked calls on whole numbers; the number of wrong elements of this rank.
  std::int64_t check();
  void put_in(std::uint64_t seed);
  std::span<std::byte> output() const;
  std::int64_t wrong_in_output(std::uint64_t seed) const;
  std::int64_t wire_sent() const;
  void meet();

  std::byte* at(std::byte* base, std::int64_t element) const;
  comm::Buffer buffer(std::byte* base, std::int64_t count) const;

  comm::Communicator& comm_;
  const comm::WireMatrix* wire_;
  const CollectivesRequest& request_;
  Spoil spoil_;
  std::unique_ptr<Memory> memory_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;

  // The row at hand.
  CollectiveCase row_;
  bool in_place_ = false;
  sharding::ShardLayout layout_;
  sharding::Range own_;  ///< this rank's part of the full buffer, elements
};

}  // namespace shardbench::bench
