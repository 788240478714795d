#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/comm/job.h"
#include "common/comm/kind.h"
#include "common/core/descriptor.h"
#include "common/core/dtype.h"

namespace shardbench::comm {

inline constexpr int kMaxWorldSize = 64;
inline constexpr int kSlotCount = 256;        ///< calls that may be open at once
inline constexpr int kAbortCandidates = 160;  ///< more than ever write at the same time
inline constexpr int kLabelBytes = 64;

/// Text of a fixed size in shared memory, written and read by different ranks at any time: words
/// are atomic, a mixture of two texts does no harm.
class SharedLabel {
 public:
  void store(std::string_view text);
  std::string load() const;

 private:
  std::atomic<std::uint64_t> words_[kLabelBytes / 8];
};

/// Where one rank is.
struct alignas(64) RankState {
  std::atomic<std::uint64_t> heartbeat;  ///< grows with every position and every call
  std::atomic<std::int64_t> next_sequence;
  std::atomic<std::int32_t> collective;  ///< kind + 1 while inside one, 0 outside
  std::atomic<std::int64_t> sequence;    ///< of that collective
  std::atomic<std::uint32_t> phase;
  std::atomic<std::uint32_t> ended;  ///< its function returned
  std::atomic<std::uint64_t> lanes;  ///< where its chunks lie in its arena (see Lanes)
  SharedLabel unit;
};

/// What one rank published about one call. `issued`, `finished` and `closed` hold sequence + 1.
struct alignas(64) SlotEntry {
  std::atomic<std::uint64_t> issued;
  std::atomic<std::uint64_t> finished;  ///< touches no peer's memory any more
  std::atomic<std::uint64_t> closed;    ///< reads no entry any more
  std::uint64_t fingerprint;
  std::int64_t arrival_ns;
  std::uint64_t offset;  ///< of its buffer, from the start of its arena
  std::int64_t count;    ///< payload elements
  std::int32_t root;
  std::uint8_t kind;
  DType dtype;
  std::uint8_t op;
  std::uint8_t streamed;  ///< its buffer is out of reach: chunks of it come through lanes
  char label[kLabelBytes];
};

/// One of the ring's slots; call n uses slot n % kSlotCount. The counters only grow: each call adds
/// world_size to every one, so that "all ranks have" is counter >= generations x world_size.
struct SlotHead {
  alignas(64) std::atomic<std::uint64_t> arrived;
  alignas(64) std::atomic<std::uint64_t> finished;
  alignas(64) std::atomic<std::uint64_t> closed;
};

/// How many chunks have been put into a lane, or taken out of it by one reader. Only grows.
struct alignas(64) LaneCounter {
  std::atomic<std::uint64_t> chunks;
};

/// Each who aborts writes its own candidate in full, then tries to become the winner: a process
/// that dies in between leaves nothing half done.
struct AbortCandidate {
  std::int32_t rank;
  std::uint32_t phase;
  std::int32_t reason;
  std::int64_t sequence;
  char unit[kLabelBytes];
  char collective[32];
  char message[1536];
};

struct SegmentHeader {
  alignas(64) std::atomic<std::uint32_t> events;  ///< futex word: something completed
  alignas(64) std::atomic<std::uint32_t> sleepers;
  alignas(64) std::atomic<std::int32_t> winner;  ///< index of the abort in force, -1 none
  std::atomic<std::uint32_t> tickets;
  std::atomic<std::int64_t> progress;  ///< in the job's own units
  AbortCandidate candidates[kAbortCandidates];
};

/// The mapping: header, ranks, counters, slots, then one arena per rank. Sparse: only what is
/// touched takes memory. Unmapped when destroyed.
class SharedSegment {
 public:
  /// Throws UserError when the world size is out of range or the mapping cannot be had.
  explicit SharedSegment(int world_size);
  /// The segment behind `memory`, which another process made for as many ranks (see memory()).
  SharedSegment(int world_size, Descriptor memory);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  int world_size() const { return world_size_; }
  SegmentHeader& header() const { return *header_; }
  RankState& rank(int rank) const { return ranks_[rank]; }
  SlotHead& slot(std::int64_t sequence) const { return slots_[sequence % kSlotCount]; }
  SlotEntry& entry(std::int64_t sequence, int rank) const {
    return entries_[sequence % kSlotCount * world_size_ + rank];
  }
  std::atomic<std::int64_t>& wire(CollectiveKind kind, Phase phase, int source,
                                  int destination) const;
  std::atomic<std::int64_t>& staging(CollectiveKind kind, Phase phase, int rank) const;

  /// Chunks that `source` has put into one of its lanes.
  std::atomic<std::uint64_t>& lane_put(int source, int lane) const;
  /// Chunks that `reader` has taken out of `source`'s lane to it, or out of the common one.
  std::atomic<std::uint64_t>& lane_taken(int source, int reader, bool common) const;

  std::byte* arena(int rank) const {
    return arenas_ + arena_bytes_ * static_cast<std::size_t>(rank);
  }
  std::size_t arena_bytes() const { return arena_bytes_; }

  /// The memory itself, for a process that attaches to it. Owned by the segment.
  int memory() const { return memory_.get(); }

  /// Wakes every rank that sleeps in a wait.
  void signal();

 private:
  struct Tables;
  bool map(std::size_t bytes);
  void place(const Tables& tables);

  int world_size_;
  Descriptor memory_;
  std::byte* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::size_t arena_bytes_ = 0;
  SegmentHeader* header_ = nullptr;
  RankState* ranks_ = nullptr;
  SlotHead* slots_ = nullptr;
  SlotEntry* entries_ = nullptr;
  std::atomic<std::int64_t>* wire_ = nullptr;
  std::atomic<std::int64_t>* staging_ = nullptr;
  LaneCounter* lanes_ = nullptr;  ///< [source][peer]: put, taken, taken of the common one
  std::byte* arenas_ = nullptr;
};

/// Copies as much of `text` as fits, with a closing zero.
void copy_text(std::string_view text, char* out, std::size_t bytes);

}  // namespace shardbench::comm
