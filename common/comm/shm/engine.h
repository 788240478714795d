#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/shm/call.h"
#include "common/comm/shm/lanes.h"
#include "common/comm/shm/peer_window.h"
#include "common/comm/shm/segment_job.h"

namespace shardbench::comm {

/// Issues, moves and finishes the calls of one rank. Call n of every rank meets in slot
/// n % kSlotCount: a rank publishes where its buffer lies, and whoever needs it copies. Bytes are
/// moved in waits, or when another call passes by and all peers are there. Used by one thread.
class ShmEngine : public std::enable_shared_from_this<ShmEngine> {
 public:
  ShmEngine(std::shared_ptr<SegmentJob> job, int rank);

  int rank() const { return rank_; }
  SegmentJob& job() const { return *job_; }
  SymmetricHeap& heap() const { return *heap_; }

  /// Publishes the call and returns; blocks only while all slots are open. Throws JobAborted, also
  /// when a peer's call of this number is another one.
  std::shared_ptr<ShmCall> issue(CallSpec spec);

  using Goal = Work::State::Goal;
  using Patience = std::optional<std::chrono::nanoseconds>;
  /// Returns false when `patience` passes first; without it, only when the goal is reached.
  bool wait(ShmCall& call, Goal goal, Deadline deadline, Patience patience);
  /// Moves what can be moved. Throws JobAborted.
  void poll();
  void quiesce();
  /// Tells the launcher that this rank has not stalled.
  void show_life() { segment_.rank(rank_).heartbeat.fetch_add(1, std::memory_order_relaxed); }
  /// Forgets all open calls; their waits throw from now on.
  void shut_down();

 private:
  using Missing = std::function<bool(int peer)>;
  using Done = std::function<bool()>;
  /// Where peers find what this rank puts in.
  struct Source {
    std::uint64_t offset = 0;  ///< in its arena
    bool streamed = false;     ///< chunks of it come through lanes instead
  };

  // engine.cpp: what a rank tells its peers, and progress.
  void await_slot(ShmCall& call);
  void publish(ShmCall& call, const Source& source);
  void compare_with(const ShmCall& call, int peer);
  [[noreturn]] void fail_mismatch(const ShmCall& call, int peer);
  void advance(ShmCall& call);
  void mark_finished(ShmCall& call);
  void close(ShmCall& call);
  void timed(ShmCall& call, void (ShmEngine::*mover)(ShmCall&));
  void try_to_move(ShmCall& call);
  bool may_move(const ShmCall& call) const;
  bool all_arrived(std::int64_t sequence) const;
  bool all_finished(std::int64_t sequence) const;
  bool has_arrived(std::int64_t sequence, int peer) const;
  bool has_finished(std::int64_t sequence, int peer) const;
  std::uint64_t target_of(std::int64_t sequence) const;

  // wait.cpp: blocking, deadlines, who is missing.
  /// Returns whether `done`; false only when `patience` has passed.
  bool block(ShmCall& call, const Done& done, const Missing& missing, Deadline deadline,
             Patience patience = {});
  bool misses(const ShmCall& call, Goal goal, int peer) const;
  bool is_about_to_end(const ShmCall& call, std::chrono::nanoseconds waited) const;
  void sleep(std::uint32_t seen, std::chrono::nanoseconds longest);
  void fail_if_ended(const ShmCall& call, const Done& done, const Missing& missing);
  [[noreturn]] void fail_timeout(const ShmCall& call, const Missing& missing,
                                 std::chrono::nanoseconds waited);

  // move.cpp: staging and the copies.
  Source stage(ShmCall& call);
  void move(ShmCall& call);
  void move_all_gather(ShmCall& call);
  void move_reduction(ShmCall& call);
  void move_all_reduce(ShmCall& call);
  void move_broadcast(ShmCall& call);
  void unstage(ShmCall& call);
  void stage_range(ShmCall& call, std::int64_t begin, std::int64_t count);
  void count_staging(const ShmCall& call, std::int64_t bytes);
  std::size_t source_bytes(const CallSpec& spec, int rank) const;
  PeerWindow window(const ShmCall& call, int peer, PeerWindow::Access access);

  // stream.cpp: chunks through lanes.
  std::int64_t chunk_elements(const ShmCall& call) const;
  static bool may_stream(const CallSpec& spec);
  bool streams_from(const ShmCall& call, int peer) const;
  bool has_streamed_source(const ShmCall& call) const;
  void begin_stream(ShmCall& call, bool is_source);
  bool lanes_are_free_for(const ShmCall& call) const;
  void advance_stream(ShmCall& call);
  bool put_chunks(ShmCall& call);
  bool sum_chunk(ShmCall& call);
  bool get_chunks(ShmCall& call);
  PeerWindow lane_window(const ShmCall& call, int peer, bool common);

  std::shared_ptr<SegmentJob> job_;
  SharedSegment& segment_;
  std::shared_ptr<SymmetricHeap> heap_;
  int rank_;
  int world_size_;
  Lanes lanes_;
  bool crowded_;  ///< more ranks than cores: the one awaited needs this core
  int spin_limit_;
  bool shut_down_ = false;
  std::vector<std::shared_ptr<ShmCall>> pending_;  ///< in the order issued
  std::int64_t moved_ns_ = 0;                      ///< of all calls
};

}  // namespace shardbench::comm
