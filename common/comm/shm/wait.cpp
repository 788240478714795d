#include <algorithm>

#include "common/comm/in_collective.h"
#include "common/comm/shm/engine.h"
#include "common/comm/shm/futex.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);

}  // namespace

void ShmEngine::wait_complete(ShmCall& call, Deadline deadline) {
  const bool one_source = call.spec_.kind == CollectiveKind::kBroadcast;
  block(
      call, [&] { return call.complete_; },
      [&, one_source](int peer) {
        if (one_source) return peer == call.spec_.root && !has_arrived(call.sequence_, peer);
        return all_arrived(call.sequence_) ? !has_finished(call.sequence_, peer)
                                           : !has_arrived(call.sequence_, peer);
      },
      deadline);
}

void ShmEngine::wait_released(ShmCall& call, Deadline deadline) {
  block(
      call, [&] { return call.complete_ && call.released_; },
      [&](int peer) { return !has_finished(call.sequence_, peer); }, deadline);
}

void ShmEngine::wait_arrived(ShmCall& call, Deadline deadline) {
  block(
      call, [&] { return call.closed_; },
      [&](int peer) { return !has_arrived(call.sequence_, peer); }, deadline);
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

void ShmEngine::block(ShmCall& call, const Done& done, const Missing& missing, Deadline deadline) {
  if (done()) return;
  if (shut_down_) throw JobAborted("a call was waited for after its communicator had been dropped");
  const InCollective position(*job_, rank_, call.spec_.kind, call.sequence_);
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = deadline.value_or(start + job_->options().timeout);
  const std::int64_t moved_before = moved_ns_;
  std::atomic<std::uint32_t>& events = segment_.header().events;
  for (;;) {
    const std::uint32_t seen = events.load();
    poll();
    if (done()) break;
    const Clock::time_point now = Clock::now();
    if (now >= end) fail_timeout(call, missing, now - start);
    for (int i = 0; i < spin_limit_ && events.load(std::memory_order_relaxed) == seen; ++i) {
      cpu_pause();
    }
    if (events.load() != seen) continue;
    fail_if_ended(call, done, missing);
    sleep(seen, std::min<std::chrono::nanoseconds>(kSlice, end - now));
  }
  const std::int64_t elapsed =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  call.timing_.peer_wait_ns += std::max<std::int64_t>(0, elapsed - (moved_ns_ - moved_before));
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

void ShmCall::wait(Deadline deadline) { engine_->wait_complete(*this, deadline); }
void ShmCall::wait_released(Deadline deadline) { engine_->wait_released(*this, deadline); }
void ShmCall::wait_arrived(Deadline deadline) { engine_->wait_arrived(*this, deadline); }

void ShmCall::poll() {
  engine_->show_life();  // its caller sleeps on purpose, as an emulated link does
  engine_->poll();
}

bool ShmCall::done() {
  if (!complete_) engine_->poll();
  return complete_;
}

bool ShmCall::arrived() {
  if (!closed_) engine_->poll();
  return closed_;
}

}  // namespace shardbench::comm
