#include "common/comm/shm/engine.h"

#include <algorithm>
#include <thread>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

constexpr int kSpins = 2000;  // about 50 microseconds
constexpr int kSpinsCrowded = 50;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string describe(const SlotEntry& entry) {
  const auto kind = static_cast<CollectiveKind>(entry.kind);
  std::string text = fmt::format("{} '{}'", name_of(kind), entry.label);
  if (kind == CollectiveKind::kBarrier) return text;
  text += fmt::format(" of {} {} elements", entry.count, name_of(entry.dtype));
  constexpr std::string_view kOps[] = {"sum", "average", "max"};
  if (reduces(kind)) text += fmt::format(", {}", kOps[entry.op]);
  if (has_root(kind)) text += fmt::format(", root {}", entry.root);
  return text;
}

}  // namespace

ShmEngine::ShmEngine(std::shared_ptr<SegmentJob> job, int rank)
    : job_(std::move(job)),
      segment_(job_->segment()),
      heap_(job_->heap(rank)),
      rank_(rank),
      world_size_(job_->world_size()),
      lanes_(*job_, *heap_, rank) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  crowded_ = world_size_ > cores;
  spin_limit_ = crowded_ ? kSpinsCrowded : kSpins;
}

std::uint64_t ShmEngine::target_of(std::int64_t sequence) const {
  return static_cast<std::uint64_t>(sequence / kSlotCount + 1) *
         static_cast<std::uint64_t>(world_size_);
}

bool ShmEngine::all_arrived(std::int64_t sequence) const {
  return segment_.slot(sequence).arrived.load(std::memory_order_acquire) >= target_of(sequence);
}

bool ShmEngine::all_finished(std::int64_t sequence) const {
  return segment_.slot(sequence).finished.load(std::memory_order_acquire) >= target_of(sequence);
}

bool ShmEngine::has_arrived(std::int64_t sequence, int peer) const {
  return segment_.entry(sequence, peer).issued.load() > static_cast<std::uint64_t>(sequence);
}

bool ShmEngine::has_finished(std::int64_t sequence, int peer) const {
  return segment_.entry(sequence, peer).finished.load() > static_cast<std::uint64_t>(sequence);
}

std::shared_ptr<ShmCall> ShmEngine::issue(CallSpec spec) {
  job_->check_alive();
  RankState& state = segment_.rank(rank_);
  show_life();
  const std::int64_t sequence = state.next_sequence.load(std::memory_order_relaxed);
  auto call = std::make_shared<ShmCall>(shared_from_this(), std::move(spec), sequence);
  call->fingerprint_ = fingerprint_of(call->spec_);
  await_slot(*call);
  state.next_sequence.store(sequence + 1, std::memory_order_relaxed);

  const std::int64_t before = now_ns();
  const Source source = stage(*call);
  if (call->staging_.data() != nullptr) {
    const std::int64_t spent = now_ns() - before;
    call->timing_.move_ns += spent;
    moved_ns_ += spent;
  }
  if (source.streamed) begin_stream(*call, /*is_source=*/true);
  publish(*call, source);
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && has_arrived(sequence, peer)) compare_with(*call, peer);
  }
  poll();  // earlier calls whose peers have come meanwhile
  pending_.push_back(call);
  const CollectiveKind kind = call->spec_.kind;
  const bool is_root = rank_ == call->spec_.root;
  if (source.streamed) return call;
  // Nothing to fetch: complete at once, so that no peer has to wait for this rank's next call.
  if (kind == CollectiveKind::kBarrier || (kind == CollectiveKind::kReduce && !is_root) ||
      (kind == CollectiveKind::kBroadcast && is_root)) {
    timed(*call, &ShmEngine::move);
    call->moved_ = true;
    mark_finished(*call);
    call->complete_ = kind != CollectiveKind::kBarrier;
    if (call->complete_) call->timing_.completed_ns = now_ns();
  }
  return call;
}

void ShmEngine::await_slot(ShmCall& call) {
  const std::int64_t before = call.sequence_ - kSlotCount;
  if (before < 0) return;
  const auto is_free = [&] {
    return segment_.slot(before).closed.load(std::memory_order_acquire) >= target_of(before);
  };
  const auto missing = [&](int peer) {
    return segment_.entry(before, peer).closed.load() <= static_cast<std::uint64_t>(before);
  };
  block(call, is_free, missing, {});
}

void ShmEngine::publish(ShmCall& call, const Source& source) {
  const CallSpec& spec = call.spec_;
  SlotEntry& entry = segment_.entry(call.sequence_, rank_);
  entry.fingerprint = call.fingerprint_;
  entry.arrival_ns = now_ns();
  entry.offset = source.offset;
  entry.streamed = source.streamed ? 1 : 0;
  entry.count = spec.count;
  entry.root = spec.root;
  entry.kind = static_cast<std::uint8_t>(spec.kind);
  entry.dtype = spec.dtype;
  entry.op = static_cast<std::uint8_t>(spec.op);
  copy_text(spec.label, entry.label, sizeof(entry.label));
  // Sequentially consistent, as is has_arrived(): of two ranks that publish different calls at the
  // same time at least one sees the other's.
  entry.issued.store(static_cast<std::uint64_t>(call.sequence_) + 1);
  const std::uint64_t arrived = segment_.slot(call.sequence_).arrived.fetch_add(1) + 1;
  const bool is_source = spec.kind == CollectiveKind::kBroadcast && spec.root == rank_;
  if (arrived == target_of(call.sequence_) || is_source) segment_.signal();
}

void ShmEngine::compare_with(const ShmCall& call, int peer) {
  if (segment_.entry(call.sequence_, peer).fingerprint != call.fingerprint_) {
    fail_mismatch(call, peer);
  }
}

void ShmEngine::fail_mismatch(const ShmCall& call, int peer) {
  const int first = std::min(rank_, peer);
  const int second = std::max(rank_, peer);
  const std::string a = describe(segment_.entry(call.sequence_, first));
  const std::string b = describe(segment_.entry(call.sequence_, second));
  AbortRecord record = job_->position_of(rank_);
  record.reason = AbortRecord::Reason::kThrew;
  record.collective = name_of(call.spec_.kind);
  record.sequence = call.sequence_;
  record.message = fmt::format(
      "order differs: call #{} is {} on rank {}, but {} on rank {}{}; all ranks must issue the "
      "same calls in the same order",
      call.sequence_, a, first, b, second, a == b ? " with another layout" : "");
  job_->abort(record);
  job_->check_alive();
  throw JobAborted(record.message);
}

void ShmEngine::poll() {
  job_->check_alive();
  for (const auto& call : pending_) advance(*call);
  std::erase_if(pending_, [](const auto& call) { return call->closed_ && call->released_; });
}

bool ShmEngine::may_move(const ShmCall& call) const {
  if (call.spec_.kind == CollectiveKind::kBroadcast) {
    return has_arrived(call.sequence_, call.spec_.root);
  }
  return all_arrived(call.sequence_);
}

void ShmEngine::advance(ShmCall& call) {
  const CollectiveKind kind = call.spec_.kind;
  if (!call.moved_) try_to_move(call);
  if (call.moved_ && !call.finished_) mark_finished(call);
  if (!call.released_ && call.finished_) call.released_ = all_finished(call.sequence_);
  if (!call.complete_ && call.moved_) {
    // Peers write their slices of an all_reduce; a barrier's output is that all have come.
    const bool written_by_peers = kind == CollectiveKind::kAllReduce && call.stream_ == nullptr;
    const bool ready = written_by_peers                   ? call.released_
                       : kind == CollectiveKind::kBarrier ? all_arrived(call.sequence_)
                                                          : true;
    if (ready) {
      if (written_by_peers && call.staging_.data() != nullptr) timed(call, &ShmEngine::unstage);
      call.complete_ = true;
      call.timing_.completed_ns = now_ns();
    }
  }
  if (!call.closed_ && call.complete_ && all_arrived(call.sequence_)) close(call);
  if (call.released_ && call.complete_) call.staging_ = {};
}

void ShmEngine::try_to_move(ShmCall& call) {
  if (call.stream_ == nullptr) {
    if (!may_move(call)) return;
    if (!has_streamed_source(call)) {
      timed(call, &ShmEngine::move);
      call.moved_ = true;
      return;
    }
    begin_stream(call, /*is_source=*/false);
  }
  timed(call, &ShmEngine::advance_stream);
}

void ShmEngine::timed(ShmCall& call, void (ShmEngine::*mover)(ShmCall&)) {
  const std::int64_t before = now_ns();
  (this->*mover)(call);
  const std::int64_t spent = now_ns() - before;
  call.timing_.move_ns += spent;
  moved_ns_ += spent;
}

void ShmEngine::mark_finished(ShmCall& call) {
  call.finished_ = true;
  const auto mark = static_cast<std::uint64_t>(call.sequence_) + 1;
  segment_.entry(call.sequence_, rank_).finished.store(mark);
  const std::uint64_t finished = segment_.slot(call.sequence_).finished.fetch_add(1) + 1;
  if (finished == target_of(call.sequence_)) segment_.signal();
}

void ShmEngine::close(ShmCall& call) {
  std::int64_t last = 0;
  for (int peer = 0; peer < world_size_; ++peer) {
    last = std::max(last, segment_.entry(call.sequence_, peer).arrival_ns);
  }
  call.last_arrival_ = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(last));
  call.closed_ = true;
  const auto mark = static_cast<std::uint64_t>(call.sequence_) + 1;
  segment_.entry(call.sequence_, rank_).closed.store(mark);
  const std::uint64_t closed = segment_.slot(call.sequence_).closed.fetch_add(1) + 1;
  if (closed == target_of(call.sequence_)) segment_.signal();
}

}  // namespace shardbench::comm
