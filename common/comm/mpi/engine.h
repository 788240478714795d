#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/job.h"
#include "common/comm/mpi/call.h"
#include "common/comm/mpi/options.h"
#include "common/comm/mpi/staging_pool.h"
#include "common/comm/mpi/tag.h"
#include "common/comm/mpi/transport.h"
#include "common/core/error.h"

namespace shardbench::comm {

/// Issues and finishes the calls of one rank. Messages move whenever MPI is called: in waits, when
/// another call is issued, and by a thread of its own while calls are open and nobody waits.
class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  /// Collective over all processes.
  MpiEngine(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<Job> job, MpiOptions options,
            const HostShare& share);
  ~MpiEngine();

  int rank() const { return transport_.rank(); }
  int world_size() const { return transport_.world_size(); }
  Job& job() const { return *job_; }
  const std::shared_ptr<MessageCounts>& counts() const { return transport_.counts(); }
  /// Null unless transfers may go through this host's shared memory.
  const RelayGround* ground() const { return ground_ ? &*ground_ : nullptr; }

  /// Starts the call's messages; blocks only while too many calls are open. Throws JobAborted.
  std::shared_ptr<MpiCall> issue(CallSpec spec);

  using Goal = Work::State::Goal;
  using Patience = std::optional<std::chrono::nanoseconds>;
  /// Returns false when `patience` passes first; without it, only when the goal is reached.
  bool wait_for(MpiCall& call, Goal goal, Deadline deadline, Patience patience = {});
  bool has_reached(MpiCall& call, Goal goal);
  void poll();
  void quiesce();
  /// Ends the progress thread and forgets all open calls; their waits throw from now on.
  void shut_down();

  std::mutex& mutex() { return transport_.runtime().mutex(); }

 private:
  // issue.cpp: the messages of each collective.
  void post(MpiCall& call);
  bool is_relayed(const CallSpec& spec) const;
  void start_relay(MpiCall& call);
  void send_shard(MpiCall& call);
  void receive_shard(MpiCall& call, int owner);
  void spread_own(MpiCall& call);
  void send_pieces(MpiCall& call, int only_owner);
  void send_piece(MpiCall& call, int owner, sharding::Range elements);
  void post_all_reduce(MpiCall& call);
  void post_barrier(MpiCall& call);
  void reduce_own(MpiCall& call, std::span<const sharding::Segment> own, std::int64_t chunk);
  std::int64_t chunk_elements(const CallSpec& spec) const;

  // engine.cpp: progress.
  std::shared_ptr<MpiCall> next_call(CallSpec spec);
  void check_alive();
  void poll_locked();
  void advance(MpiCall& call);
  void advance_relayed(MpiCall& call);
  static void settle(MpiCall& call, bool complete, bool released);
  void sum_chunk(MpiCall& call);
  void send_result(MpiCall& call, sharding::Range chunk);
  void ask_for_results(MpiCall& call);
  void progress();
  void wake_progress();

  // wait.cpp: blocking, deadlines, who is missing.
  static bool reached(const MpiCall& call, Goal goal);
  bool spin(MpiCall& call, Goal goal, std::unique_lock<std::mutex>& lock);
  /// Returns whether the goal is reached; false only when it is `given_up`.
  bool block(MpiCall& call, Goal goal, std::chrono::steady_clock::time_point start,
             std::chrono::steady_clock::time_point end,
             std::chrono::steady_clock::time_point given_up, std::unique_lock<std::mutex>& lock);
  void wait_for_oldest();
  bool waits_for_one_that_waits(MpiCall& call);
  std::vector<int> missing_peers(MpiCall& call);
  void look_for_mismatch(MpiCall& call);
  [[noreturn]] void fail_timeout(MpiCall& call, std::chrono::nanoseconds waited);
  [[noreturn]] void fail(const MpiCall& call, AbortRecord::Reason reason, int about,
                         const std::string& message);
  /// Runs `step`; what MPI reports ends the job, naming the call.
  template <class Step>
  void guarded(const MpiCall& call, const Step& step) {
    try {
      step();
    } catch (const JobAborted& error) {
      fail(call, AbortRecord::Reason::kThrew, rank(), error.what());
    }
  }

  std::shared_ptr<Job> job_;
  MpiOptions options_;
  MpiTransport transport_;
  std::optional<RelayGround> ground_;
  TagLayout tags_;
  int spin_limit_;
  // With the runtime's mutex held:
  std::vector<std::shared_ptr<MpiCall>> pending_;  ///< in the order issued
  std::vector<std::shared_ptr<MpiCall>> spare_;    ///< finished ones, to be used again
  StagingPool pool_;
  std::vector<ByteRange> scratch_;
  std::int64_t summed_ns_ = 0;  ///< time spent in sums, of all calls
  bool shut_down_ = false;

  std::int64_t next_sequence_ = 0;
  std::atomic<std::size_t> open_{0};  ///< pending_.size()
  std::atomic<int> waiting_{0};       ///< threads that poll already
  std::atomic<bool> asleep_{false};   ///< the progress thread, until it is woken
  std::atomic<bool> stop_{false};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace shardbench::comm
