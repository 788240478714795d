#include "common/comm/job.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "common/comm/shm/segment_job.h"
#include "common/core/error.h"
#include "common/core/rank_context.h"

namespace shardbench::comm {

std::shared_ptr<Job> Job::create(const Options& options) {
  return std::make_shared<SegmentJob>(options);
}

std::shared_ptr<SegmentJob> as_segment_job(const std::shared_ptr<Job>& job) {
  auto segment_job = std::dynamic_pointer_cast<SegmentJob>(job);
  SHARDBENCH_CHECK(segment_job != nullptr, "not a job made by Job::create");
  return segment_job;
}

SegmentJob::SegmentJob(const Options& options)
    : SegmentJob(options, std::make_shared<SharedSegment>(options.world_size)) {}

SegmentJob::SegmentJob(const Options& options, Descriptor memory)
    : SegmentJob(options, std::make_shared<SharedSegment>(options.world_size, std::move(memory))) {}

SegmentJob::SegmentJob(const Options& options, std::shared_ptr<SharedSegment> segment)
    : options_(options),
      segment_(std::move(segment)),
      heaps_(static_cast<std::size_t>(options.world_size)),
      claimed_(static_cast<std::size_t>(options.world_size)) {
  if (options.timeout.count() <= 0) {
    throw UserError::format("timeout {} ms must be positive", options.timeout.count());
  }
#ifdef SHARDBENCH_GUARD_PEERS
  options_.guard_peers = true;
#endif
}

void SegmentJob::set_position(int rank, Phase phase, std::string_view unit) {
  RankState& state = segment_->rank(rank);
  state.phase.store(static_cast<std::uint32_t>(phase), std::memory_order_relaxed);
  state.unit.store(unit);
  state.heartbeat.fetch_add(1, std::memory_order_relaxed);
}

void SegmentJob::enter_collective(int rank, CollectiveKind kind, std::int64_t sequence) {
  RankState& state = segment_->rank(rank);
  state.heartbeat.fetch_add(1, std::memory_order_relaxed);
  state.sequence.store(sequence, std::memory_order_relaxed);
  state.collective.store(static_cast<std::int32_t>(kind) + 1, std::memory_order_relaxed);
}

void SegmentJob::leave_collective(int rank) {
  segment_->rank(rank).collective.store(0, std::memory_order_relaxed);
}

void SegmentJob::set_progress(int rank, std::int64_t done) {
  segment_->rank(rank).heartbeat.fetch_add(1, std::memory_order_relaxed);
  segment_->header().progress.store(done, std::memory_order_relaxed);
}

std::int64_t SegmentJob::progress() const {
  return segment_->header().progress.load(std::memory_order_relaxed);
}

void SegmentJob::abort(const AbortRecord& record) {
  SegmentHeader& header = segment_->header();
  if (is_aborted()) return;
  const std::uint32_t ticket = header.tickets.fetch_add(1);
  if (ticket >= kAbortCandidates) return;  // so many others are about to win
  AbortCandidate& candidate = header.candidates[ticket];
  candidate.rank = record.rank;
  candidate.phase = static_cast<std::uint32_t>(record.phase);
  candidate.reason = static_cast<std::int32_t>(record.reason);
  candidate.sequence = record.sequence;
  copy_text(record.unit, candidate.unit, sizeof(candidate.unit));
  copy_text(record.collective, candidate.collective, sizeof(candidate.collective));
  copy_text(record.message, candidate.message, sizeof(candidate.message));
  std::int32_t nobody = -1;
  header.winner.compare_exchange_strong(nobody, static_cast<std::int32_t>(ticket));
  segment_->signal();
}

std::optional<AbortRecord> SegmentJob::aborted() const {
  const std::int32_t winner = segment_->header().winner.load(std::memory_order_acquire);
  if (winner < 0) return std::nullopt;
  const AbortCandidate& candidate = segment_->header().candidates[winner];
  AbortRecord record;
  record.rank = candidate.rank;
  record.phase = static_cast<Phase>(candidate.phase);
  record.reason = static_cast<AbortRecord::Reason>(candidate.reason);
  record.sequence = candidate.sequence;
  record.unit = candidate.unit;
  record.collective = candidate.collective;
  record.message = candidate.message;
  return record;
}

void SegmentJob::check_alive() const {
  if (is_aborted()) [[unlikely]] {
    throw JobAborted(aborted()->message);
  }
}

AbortRecord SegmentJob::position_of(int rank) const {
  const RankState& state = segment_->rank(rank);
  AbortRecord record;
  record.rank = rank;
  record.phase = static_cast<Phase>(state.phase.load(std::memory_order_relaxed));
  record.unit = state.unit.load();
  const std::int32_t collective = state.collective.load(std::memory_order_relaxed);
  if (collective > 0) {
    record.collective = name_of(static_cast<CollectiveKind>(collective - 1));
    record.sequence = state.sequence.load(std::memory_order_relaxed);
  } else {
    record.sequence = state.next_sequence.load(std::memory_order_relaxed) - 1;
  }
  return record;
}

std::shared_ptr<SymmetricHeap> SegmentJob::heap(int rank) {
  const std::lock_guard lock(mutex_);
  auto& heap = heaps_.at(static_cast<std::size_t>(rank));
  if (heap == nullptr) heap = std::make_shared<SymmetricHeap>(segment_, rank);
  return heap;
}

void SegmentJob::claim_communicator(int rank) {
  const std::lock_guard lock(mutex_);
  SHARDBENCH_CHECK(rank >= 0 && rank < world_size(), "rank {} of {}", rank, world_size());
  SHARDBENCH_CHECK(claimed_[static_cast<std::size_t>(rank)] == 0,
                   "rank {} already has a communicator of this job", rank);
  claimed_[static_cast<std::size_t>(rank)] = 1;
}

void SegmentJob::drop_communicator(int rank) {
  const std::lock_guard lock(mutex_);
  claimed_[static_cast<std::size_t>(rank)] = 0;
}

void SegmentJob::enter_process(int rank) {
  if (!options_.guard_peers) return;
  guarded_ = true;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank) continue;
    SHARDBENCH_CHECK_EQ(mprotect(segment_->arena(peer), segment_->arena_bytes(), PROT_NONE), 0);
  }
}

std::string describe_position(const Job& job, int rank) {
  const AbortRecord at = job.position_of(rank);
  std::string text = fmt::format("rank {} (phase {}", rank, name_of(at.phase));
  if (!at.unit.empty()) text += fmt::format(", unit '{}'", at.unit);
  if (!at.collective.empty()) {
    text += fmt::format(", in {} #{})", at.collective, at.sequence);
  } else if (at.sequence >= 0) {
    text += fmt::format(", outside any collective, last call #{})", at.sequence);
  } else {
    text += ", before its first collective)";
  }
  return text;
}

std::string format_duration(std::chrono::milliseconds duration) {
  if (duration.count() < 1000) return fmt::format("{} ms", duration.count());
  return fmt::format("{:.3g} s", static_cast<double>(duration.count()) / 1e3);
}

}  // namespace shardbench::comm
