#include <algorithm>

#include "common/comm/launch/outcome.h"
#include "common/core/error.h"
#include "common/core/rank_context.h"

namespace shardbench::comm {
namespace {

/// Fills the abort record for an exception of `rank`; an earlier record stays.
void report_throw(SegmentJob& job, int rank, std::string_view what) {
  AbortRecord record = job.position_of(rank);
  record.reason = AbortRecord::Reason::kThrew;
  record.message = what;
  job.abort(record);
}

}  // namespace

bool run_rank(SegmentJob& job, int rank, const std::function<std::string(int)>& rank_main,
              std::string& result) {
  rank_context() = {rank, job.world_size(), "shm"};
  bool returned = false;
  try {
    result = rank_main(rank);
    returned = true;
  } catch (const std::exception& error) {
    report_throw(job, rank, message_of(error));
  } catch (...) {
    report_throw(job, rank, "an exception that is no std::exception");
  }
  job.segment().rank(rank).ended.store(1, std::memory_order_release);
  job.segment().signal();
  return returned;
}

JobOutcome make_outcome(const SegmentJob& job, std::vector<std::string> results, int signal) {
  JobOutcome outcome;
  outcome.failure = job.aborted();
  outcome.signal = signal;
  outcome.ok = !outcome.failure.has_value() && signal == 0;
  outcome.results = std::move(results);
  return outcome;
}

StallWatch::StallWatch(SegmentJob& job)
    : job_(job),
      beats_(static_cast<std::size_t>(job.world_size())),
      since_(static_cast<std::size_t>(job.world_size()), std::chrono::steady_clock::now()) {}

void StallWatch::check() {
  if (job_.is_aborted()) return;
  const auto now = std::chrono::steady_clock::now();
  // A little more than the ranks' own deadline: a wait that times out names what it waits for.
  const auto limit = job_.options().timeout + std::chrono::seconds(1);
  int longest = -1;
  bool alive = false;
  for (int rank = 0; rank < job_.world_size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const RankState& state = job_.segment().rank(rank);
    if (state.ended.load(std::memory_order_acquire) != 0) continue;
    const std::uint64_t beat = state.heartbeat.load(std::memory_order_relaxed);
    if (beat != beats_[index]) {
      beats_[index] = beat;
      since_[index] = now;
    }
    alive = alive || now - since_[index] < limit;  // somebody is getting on
    if (longest < 0 || since_[index] < since_[static_cast<std::size_t>(longest)]) longest = rank;
  }
  if (alive || longest < 0) return;
  AbortRecord record = job_.position_of(longest);
  record.reason = AbortRecord::Reason::kTimeout;
  record.message =
      fmt::format("no rank has made progress for {}: {} stalled first",
                  format_duration(job_.options().timeout), describe_position(job_, longest));
  job_.abort(record);
}

}  // namespace shardbench::comm
