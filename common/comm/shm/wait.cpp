#include <algorithm>

#include "common/comm/in_collective.h"
#include "common/comm/shm/engine.h"
#include "common/comm/shm/futex.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;
constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);
constexpr nanoseconds kLongestSpin = std::chrono::milliseconds(2);

}  // namespace

/// Whether `call` cannot come to its goal without something that `peer` has not done yet.
bool ShmEngine::misses(const ShmCall& call, Goal goal, int peer) const {
  const bool comes = has_arrived(call.sequence_, peer);
  if (goal == Goal::kArrived) return !comes;
  if (call.stream_ != nullptr) return !comes || !has_finished(call.sequence_, peer);
  if (goal == Goal::kReleased) return !has_finished(call.sequence_, peer);
  if (call.spec_.kind == CollectiveKind::kBroadcast) return peer == call.spec_.root && !comes;
  return all_arrived(call.sequence_) ? !has_finished(call.sequence_, peer) : !comes;
}

bool ShmEngine::wait(ShmCall& call, Goal goal, Deadline deadline, Patience patience) {
  return block(
      call, [&] { return call.at(goal); }, [&](int peer) { return misses(call, goal, peer); },
      deadline, patience);
}

void ShmEngine::quiesce() {
  poll();
  while (!pending_.empty()) {
    const std::shared_ptr<ShmCall> oldest = pending_.front();
    block(
        *oldest, [&] { return oldest->closed_ && oldest->released_; },
        [&](int peer) {
          return !has_arrived(oldest->sequence_, peer) || !has_finished(oldest->sequence_, peer);
        },
        {});
    poll();
  }
}

void ShmEngine::shut_down() {
  shut_down_ = true;
  pending_.clear();
}

bool ShmEngine::block(ShmCall& call, const Done& done, const Missing& missing, Deadline deadline,
                      Patience patience) {
  if (done()) return true;
  if (shut_down_) throw JobAborted("a call was waited for after its communicator had been dropped");
  const InCollective position(*job_, rank_, call.spec_.kind, call.sequence_);
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = deadline.value_or(start + job_->options().timeout);
  const Clock::time_point given_up = patience ? start + *patience : Clock::time_point::max();
  const int spins = patience ? 0 : spin_limit_;
  const std::int64_t moved_before = moved_ns_;
  Clock::time_point active = start;  // when this call's chunks last came or went
  std::int64_t chunks = 0;
  bool is_done = false;
  std::atomic<std::uint32_t>& events = segment_.header().events;
  for (;;) {
    const std::uint32_t seen = events.load();
    poll();
    is_done = done();
    const Clock::time_point now = Clock::now();
    if (is_done || now >= given_up) break;
    if (now >= end) fail_timeout(call, missing, now - start);
    for (int i = 0; i < spins && events.load(std::memory_order_relaxed) == seen; ++i) cpu_pause();
    if (events.load() != seen) continue;
    fail_if_ended(call, done, missing);
    if (call.stream_ != nullptr && call.stream_->chunks != chunks) {
      chunks = call.stream_->chunks;
      active = now;
    }
    if (!patience && is_about_to_end(call, now - active)) continue;
    sleep(seen, std::min<std::chrono::nanoseconds>(kSlice, std::min(end, given_up) - now));
  }
  const std::int64_t elapsed =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  call.timing_.peer_wait_ns += std::max<std::int64_t>(0, elapsed - (moved_ns_ - moved_before));
  return is_done;
}

/// Peers move about as much as this rank and are done when as much time again has passed as it took
/// here. After a short move sleeping, and being woken, would take longer than that. So it would
/// between two chunks.
bool ShmEngine::is_about_to_end(const ShmCall& call, nanoseconds waited) const {
  if (call.stream_ != nullptr && call.stream_->chunks > 0 && !call.moved_) {
    return !crowded_ && waited < kLongestSpin;
  }
  const nanoseconds expected(2 * call.timing_.move_ns);
  return !crowded_ && call.moved_ && waited < std::min(expected, kLongestSpin);
}

void ShmEngine::sleep(std::uint32_t seen, std::chrono::nanoseconds longest) {
  SegmentHeader& header = segment_.header();
  header.sleepers.fetch_add(1);
  if (header.events.load() == seen) futex_wait(header.events, seen, longest);
  header.sleepers.fetch_sub(1);
}

void ShmEngine::fail_if_ended(const ShmCall& call, const Done& done, const Missing& missing) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (segment_.rank(peer).ended.load() == 0 || !missing(peer)) continue;
    poll();
    if (done()) return;
    AbortRecord record = job_->position_of(peer);
    record.reason = AbortRecord::Reason::kLost;
    record.collective = name_of(call.spec_.kind);
    record.sequence = call.sequence_;
    record.message = fmt::format(
        "rank {} ended without taking part in {} #{} '{}' (phase {}), for which rank {} waits",
        peer, name_of(call.spec_.kind), call.sequence_, call.spec_.label, name_of(call.spec_.phase),
        rank_);
    job_->abort(record);
    job_->check_alive();
  }
}

void ShmEngine::fail_timeout(const ShmCall& call, const Missing& missing,
                             std::chrono::nanoseconds waited) {
  std::vector<int> absent;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && missing(peer)) absent.push_back(peer);
  }
  const int first = absent.empty() ? rank_ : absent.front();
  std::string others;
  for (std::size_t i = 1; i < absent.size(); ++i) {
    others += fmt::format("{} {}", i == 1 ? "; also missing: rank" : ",", absent[i]);
  }
  AbortRecord record = job_->position_of(first);
  record.reason = AbortRecord::Reason::kTimeout;
  record.collective = name_of(call.spec_.kind);
  record.sequence = call.sequence_;
  record.message =
      fmt::format("{} #{} '{}' (phase {}): rank {} waited {} for {}{}", name_of(call.spec_.kind),
                  call.sequence_, call.spec_.label, name_of(call.spec_.phase), rank_,
                  format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(waited)),
                  describe_position(*job_, first), others);
  job_->abort(record);
  job_->check_alive();
  throw JobAborted(record.message);
}

bool ShmCall::at(Goal goal) const {
  switch (goal) {
    case Goal::kComplete:
      return complete_;
    case Goal::kReleased:
      return complete_ && released_;
    case Goal::kArrived:
      return closed_;
  }
  return false;
}

void ShmCall::wait(Goal goal, Deadline deadline) { engine_->wait(*this, goal, deadline, {}); }

bool ShmCall::wait_some(Goal goal, std::chrono::nanoseconds longest) {
  engine_->show_life();
  return engine_->wait(*this, goal, {}, longest);
}

void ShmCall::poll() {
  engine_->show_life();  // its caller sleeps on purpose, as an emulated link does
  engine_->poll();
}

bool ShmCall::reached(Goal goal) {
  if (!at(goal)) engine_->poll();
  return at(goal);
}

}  // namespace shardbench::comm
