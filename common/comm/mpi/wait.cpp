#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/comm/in_collective.h"
#include "common/comm/mpi/engine.h"
#include "common/comm/shm/futex.h"
#include "common/comm/shm/segment_job.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A poll that takes longer than this has moved bytes.
constexpr nanoseconds kBusyPoll = std::chrono::microseconds(5);
/// After so long without any movement polls are this far apart: others get the core.
constexpr nanoseconds kPatience = milliseconds(10);
constexpr nanoseconds kNap = std::chrono::microseconds(50);
/// Beyond its deadline a rank whose peers have all come lets one speak that knows who has not.
constexpr nanoseconds kGrace = std::chrono::seconds(1);
/// After so long messages are looked at that no call has asked for.
constexpr nanoseconds kSuspicion = milliseconds(100);

/// Counts the threads that poll while they wait.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
  ~Waiting() { count_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

bool MpiEngine::reached(const MpiCall& call, Goal goal) {
  switch (goal) {
    case Goal::kComplete:
      return call.complete_;
    case Goal::kReleased:
      return call.complete_ && call.released_;
    case Goal::kArrived:
      return call.arrived_;
  }
  return false;
}

bool MpiEngine::has_reached(MpiCall& call, Goal goal) {
  const std::lock_guard lock(mutex());
  if (reached(call, goal)) return true;
  poll_locked();
  return reached(call, goal);
}

bool MpiEngine::wait_for(MpiCall& call, Goal goal, Deadline deadline, Patience patience) {
  const Waiting waiting(waiting_);
  std::unique_lock lock(mutex());
  if (reached(call, goal)) return true;
  const Clock::time_point start = Clock::now();
  const std::int64_t summed_before = summed_ns_;
  const bool there = (!patience && spin(call, goal, lock)) ||
                     block(call, goal, start, deadline.value_or(start + job_->timeout()),
                           patience ? start + *patience : Clock::time_point::max(), lock);
  const nanoseconds elapsed = (there ? call.changed_ : Clock::now()) - start;
  call.timing_.peer_wait_ns +=
      std::max<std::int64_t>(0, elapsed.count() - (summed_ns_ - summed_before));
  return there;
}

/// Polls for the time that a small call takes.
bool MpiEngine::spin(MpiCall& call, Goal goal, std::unique_lock<std::mutex>& lock) {
  constexpr int kPollsPerTurn = 16;
  for (int polls = 0; polls < spin_limit_; ++polls) {
    if (polls % kPollsPerTurn == kPollsPerTurn - 1) {
      lock.unlock();
      cpu_pause();
      lock.lock();
    }
    poll_locked();
    if (reached(call, goal)) return true;
  }
  return false;
}

bool MpiEngine::block(MpiCall& call, Goal goal, Clock::time_point start, Clock::time_point end,
                      Clock::time_point given_up, std::unique_lock<std::mutex>& lock) {
  const InCollective position(*job_, rank(), call.spec_.kind, call.sequence_);
  Clock::time_point moved = start;
  Clock::time_point looked = start;
  for (;;) {
    const Clock::time_point before = Clock::now();
    poll_locked();
    if (reached(call, goal)) return true;
    if (shut_down_) {
      throw JobAborted("a call was waited for after its communicator had been dropped");
    }
    const Clock::time_point now = Clock::now();
    if (now >= given_up) return false;
    if (now >= end && (now >= end + kGrace || !waits_for_one_that_waits(call))) {
      fail_timeout(call, now - start);
    }
    if (now - before > kBusyPoll) moved = now;
    if (now - looked > kSuspicion) {
      looked = now;
      look_for_mismatch(call);
    }
    lock.unlock();
    if (now - moved > kPatience) {
      std::this_thread::sleep_for(kNap);
    } else {
      sched_yield();
    }
    lock.lock();
  }
}

void MpiEngine::wait_for_oldest() {
  std::shared_ptr<MpiCall> oldest;
  {
    const std::lock_guard lock(mutex());
    if (pending_.empty()) return;
    oldest = pending_.front();
  }
  wait_for(*oldest, Goal::kReleased, {});
}

void MpiEngine::quiesce() {
  poll();
  while (open_.load() > 0) wait_for_oldest();
  const std::lock_guard lock(mutex());
  pool_.clear();
}

/// Whether every peer of a hierarchical call has issued it: then somebody keeps one of them
/// waiting.
bool MpiEngine::waits_for_one_that_waits(MpiCall& call) {
  if (call.relay_ == nullptr) return false;
  std::vector<bool> missing(static_cast<std::size_t>(world_size()), false);
  call.relay_->add_missing(missing);
  return std::ranges::count(missing, true) == 0;
}

std::vector<int> MpiEngine::missing_peers(MpiCall& call) {
  std::vector<bool> missing(static_cast<std::size_t>(world_size()), false);
  if (call.relay_ != nullptr) {
    call.relay_->add_missing(missing);
    if (std::ranges::count(missing, true) == 0) call.relay_->add_slow(missing);
  }
  call.reduction_.add_missing(transport_, call.use_, missing);
  call.receives_.add_missing(transport_, call.result_use_, missing);
  if (call.has_input()) call.sends_.add_missing(transport_, call.use_, missing);
  std::vector<int> peers;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (missing[static_cast<std::size_t>(peer)]) peers.push_back(peer);
  }
  return peers;
}

/// A peer whose message for this call is missing may have sent one for another call instead.
void MpiEngine::look_for_mismatch(MpiCall& call) {
  for (const int peer : missing_peers(call)) {
    const int tag = transport_.unexpected_tag(peer);
    if (tag < 0 || !tags_.contradicts(tag, call.use_.tag)) continue;
    const CollectiveKind theirs = TagLayout::kind_of(tag);
    const CallSpec& spec = call.spec_;
    const std::string what =
        theirs == spec.kind
            ? fmt::format("{} with another label, size, type, operation, root or layout",
                          name_of(theirs))
            : std::string(name_of(theirs));
    fail(call, AbortRecord::Reason::kThrew, rank(),
         fmt::format("order differs: call #{} is {} '{}' of {} {} elements on rank {}, but {} on "
                     "rank {}; all ranks must issue the same calls in the same order",
                     call.sequence_, name_of(spec.kind), spec.label, spec.count,
                     name_of(spec.dtype), rank(), what, peer));
  }
}

void MpiEngine::fail_timeout(MpiCall& call, nanoseconds waited) {
  const std::vector<int> missing = missing_peers(call);
  const int first = missing.empty() ? rank() : missing.front();
  std::string others;
  for (std::size_t i = 1; i < missing.size(); ++i) {
    others += fmt::format("{} {}", i == 1 ? "; also missing: rank" : ",", missing[i]);
  }
  fail(call, AbortRecord::Reason::kTimeout, first,
       fmt::format("{} #{} '{}' (phase {}): rank {} waited {} for {}{}", name_of(call.spec_.kind),
                   call.sequence_, call.spec_.label, name_of(call.spec_.phase), rank(),
                   format_duration(std::chrono::duration_cast<milliseconds>(waited)),
                   describe_position(*job_, first), others));
}

void MpiEngine::fail(const MpiCall& call, AbortRecord::Reason reason, int about,
                     const std::string& message) {
  AbortRecord record = job_->position_of(about);
  record.reason = reason;
  record.collective = name_of(call.spec_.kind);
  record.sequence = call.sequence_;
  record.message = message;
  transport_.runtime().abandon();
  job_->abort(record);
  job_->check_alive();
  throw JobAborted(message);
}

void MpiCall::wait(Goal goal, Deadline deadline) { engine_->wait_for(*this, goal, deadline); }
bool MpiCall::wait_some(Goal goal, nanoseconds longest) {
  return engine_->wait_for(*this, goal, {}, longest);
}
bool MpiCall::reached(Goal goal) { return engine_->has_reached(*this, goal); }
void MpiCall::poll() { engine_->poll(); }

Clock::time_point MpiCall::last_arrival() const {
  const std::lock_guard lock(engine_->mutex());
  return last_arrival_;
}

WorkTiming MpiCall::timing() const {
  const std::lock_guard lock(engine_->mutex());
  return timing_;
}

}  // namespace shardbench::comm
