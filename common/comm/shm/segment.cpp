#include "common/comm/shm/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/comm/block_heap.h"
#include "common/comm/shm/futex.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

constexpr std::size_t kArenaAlignment = std::size_t{2} << 20;

constexpr std::size_t kCountersPerLane = 3;

/// Hands out consecutive parts of the segment, each on 64 bytes.
class Cursor {
 public:
  template <typename T>
  std::size_t take(std::size_t count) {
    const std::size_t at = next_;
    next_ = (at + count * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  std::size_t end() const {
    return (next_ + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }

 private:
  std::size_t next_ = 0;
};

}  // namespace

void copy_text(std::string_view text, char* out, std::size_t bytes) {
  const std::size_t n = std::min(text.size(), bytes - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

void SharedLabel::store(std::string_view text) {
  char buffer[kLabelBytes] = {};
  copy_text(text, buffer, sizeof(buffer));
  for (int i = 0; i < kLabelBytes / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, buffer + i * 8, 8);
    words_[i].store(word, std::memory_order_relaxed);
  }
}

std::string SharedLabel::load() const {
  char buffer[kLabelBytes + 1] = {};
  for (int i = 0; i < kLabelBytes / 8; ++i) {
    const std::uint64_t word = words_[i].load(std::memory_order_relaxed);
    std::memcpy(buffer + i * 8, &word, 8);
  }
  return buffer;
}

/// Where each table lies from the start of the segment; the same in every process.
struct SharedSegment::Tables {
  std::size_t header, ranks, wire, staging, lanes, slots, entries, arenas;

  explicit Tables(std::size_t ranks_count) {
    const std::size_t kinds = kCollectiveKindCount * kPhaseCount;
    Cursor cursor;
    header = cursor.take<SegmentHeader>(1);
    ranks = cursor.take<RankState>(ranks_count);
    wire = cursor.take<std::atomic<std::int64_t>>(kinds * ranks_count * ranks_count);
    staging = cursor.take<std::atomic<std::int64_t>>(kinds * ranks_count);
    lanes = cursor.take<LaneCounter>(kCountersPerLane * ranks_count * ranks_count);
    slots = cursor.take<SlotHead>(kSlotCount);
    entries = cursor.take<SlotEntry>(kSlotCount * ranks_count);
    arenas = cursor.end();
  }
};

SharedSegment::SharedSegment(int world_size) : world_size_(world_size) {
  if (world_size < 1 || world_size > kMaxWorldSize) {
    throw UserError::format("world size {} is out of range: 1 to {} ranks share one machine",
                            world_size, kMaxWorldSize);
  }
  const auto ranks = static_cast<std::size_t>(world_size);
  const Tables tables(ranks);
  memory_ = Descriptor(memfd_create("shardbench", MFD_CLOEXEC));
  for (arena_bytes_ = kLargestArena; base_ == nullptr; arena_bytes_ /= 2) {
    const std::size_t bytes = tables.arenas + arena_bytes_ * ranks;
    if (arena_bytes_ < kSmallestArena || !memory_.valid()) {
      throw UserError::format("cannot map shared memory for {} ranks: {} (see ulimit -v)",
                              world_size, std::strerror(errno));
    }
    if (ftruncate(memory_.get(), static_cast<off_t>(bytes)) == 0 && map(bytes)) break;
  }
  place(tables);
  header_->winner.store(-1);
}

SharedSegment::SharedSegment(int world_size, Descriptor memory)
    : world_size_(world_size), memory_(std::move(memory)) {
  const auto ranks = static_cast<std::size_t>(world_size);
  const Tables tables(ranks);
  struct stat info {};
  SHARDBENCH_CHECK_EQ(fstat(memory_.get(), &info), 0);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  SHARDBENCH_CHECK(bytes > tables.arenas && (bytes - tables.arenas) % ranks == 0,
                   "a segment of {} bytes for {} ranks", bytes, world_size);
  arena_bytes_ = (bytes - tables.arenas) / ranks;
  if (!map(bytes)) {
    throw UserError::format("cannot map the shared memory of {} ranks: {} (see ulimit -v)",
                            world_size, std::strerror(errno));
  }
  place(tables);
}

bool SharedSegment::map(std::size_t bytes) {
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
  if (base == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(base);
  mapped_bytes_ = bytes;
  madvise(base_, mapped_bytes_, MADV_DONTDUMP);  // a crash must not write terabytes of holes
  return true;
}

void SharedSegment::place(const Tables& tables) {
  header_ = reinterpret_cast<SegmentHeader*>(base_ + tables.header);
  ranks_ = reinterpret_cast<RankState*>(base_ + tables.ranks);
  wire_ = reinterpret_cast<std::atomic<std::int64_t>*>(base_ + tables.wire);
  staging_ = reinterpret_cast<std::atomic<std::int64_t>*>(base_ + tables.staging);
  lanes_ = reinterpret_cast<LaneCounter*>(base_ + tables.lanes);
  slots_ = reinterpret_cast<SlotHead*>(base_ + tables.slots);
  entries_ = reinterpret_cast<SlotEntry*>(base_ + tables.entries);
  arenas_ = base_ + tables.arenas;
}

SharedSegment::~SharedSegment() { munmap(base_, mapped_bytes_); }

std::atomic<std::int64_t>& SharedSegment::wire(CollectiveKind kind, Phase phase, int source,
                                               int destination) const {
  const std::size_t table =
      static_cast<std::size_t>(kind) * kPhaseCount + static_cast<std::size_t>(phase);
  const std::size_t row =
      table * static_cast<std::size_t>(world_size_) + static_cast<std::size_t>(source);
  return wire_[row * static_cast<std::size_t>(world_size_) + static_cast<std::size_t>(destination)];
}

std::atomic<std::int64_t>& SharedSegment::staging(CollectiveKind kind, Phase phase,
                                                  int rank) const {
  const std::size_t table =
      static_cast<std::size_t>(kind) * kPhaseCount + static_cast<std::size_t>(phase);
  return staging_[table * static_cast<std::size_t>(world_size_) + static_cast<std::size_t>(rank)];
}

std::atomic<std::uint64_t>& SharedSegment::lane_put(int source, int lane) const {
  const int pair = source * world_size_ + lane;
  return lanes_[static_cast<std::size_t>(pair) * kCountersPerLane].chunks;
}

std::atomic<std::uint64_t>& SharedSegment::lane_taken(int source, int reader, bool common) const {
  const int pair = source * world_size_ + reader;
  return lanes_[static_cast<std::size_t>(pair) * kCountersPerLane + (common ? 2 : 1)].chunks;
}

void SharedSegment::signal() {
  // Both sides use sequentially consistent operations on both words: either the sleeper sees the
  // new event before it sleeps, or it is seen here as a sleeper.
  header_->events.fetch_add(1);
  if (header_->sleepers.load() != 0) futex_wake_all(header_->events);
}

}  // namespace shardbench::comm
