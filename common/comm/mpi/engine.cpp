#include "common/comm/mpi/engine.h"

#include <algorithm>
#include <exception>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using sharding::Range;
using std::chrono::microseconds;

constexpr int kSpins = 2000;
constexpr int kSpinsCrowded = 20;  // more ranks than cores: the one awaited needs this core

constexpr microseconds kShortNap{50};
constexpr microseconds kLongNap{1000};
constexpr int kNapsBeforeSleep = 100;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Nothing to wait for: the root of a broadcast, and all but the root of a reduce.
bool needs_no_peer(const CallSpec& spec, int rank) {
  return (spec.kind == CollectiveKind::kBroadcast && spec.root == rank) ||
         (spec.kind == CollectiveKind::kReduce && spec.root != rank);
}

}  // namespace

MpiEngine::MpiEngine(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<Job> job,
                     MpiOptions options)
    : job_(std::move(job)),
      options_(options),
      transport_(std::move(runtime)),
      tags_(transport_.max_tag()) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  spin_limit_ = world_size() <= cores ? kSpins : kSpinsCrowded;
}

MpiEngine::~MpiEngine() { shut_down(); }

std::shared_ptr<MpiCall> MpiEngine::issue(CallSpec spec) {
  job_->check_alive();
  SHARDBENCH_CHECK(!shut_down_);
  const std::int64_t sequence = next_sequence_++;
  auto call = std::make_shared<MpiCall>(shared_from_this(), std::move(spec), sequence);
  const CallSpec& own = call->spec_;
  const std::uint64_t fingerprint = fingerprint_of(own);
  call->use_ = {.tag = tags_.make(sequence, own.kind, fingerprint, false),
                .kind = own.kind,
                .phase = own.phase,
                .element_size = own.element_size()};
  call->result_use_ = call->use_;
  call->result_use_.tag = tags_.make(sequence, own.kind, fingerprint, true);
  while (open_.load() >= TagLayout::kMostOpen) wait_for_oldest();
  {
    const std::lock_guard lock(mutex());
    const std::int64_t before = now_ns();
    guarded(*call, [&] { post(*call); });
    const std::int64_t after = now_ns();
    call->timing_.move_ns += after - before;
    if (needs_no_peer(own, rank())) {
      call->complete_ = true;
      call->timing_.completed_ns = after;
    }
    pending_.push_back(call);
    open_.store(pending_.size());
  }
  wake_progress();
  return call;
}

void MpiEngine::poll() {
  const std::lock_guard lock(mutex());
  poll_locked();
}

void MpiEngine::poll_locked() {
  job_->check_alive();
  if (shut_down_) return;
  bool any_released = false;
  for (const auto& call : pending_) {
    guarded(*call, [&] { advance(*call); });
    any_released |= call->released_;
  }
  if (!any_released) return;
  std::erase_if(pending_, [](const auto& call) { return call->released_; });
  open_.store(pending_.size());
}

void MpiEngine::advance(MpiCall& call) {
  call.sends_.advance(transport_, call.use_);
  // An exchanged payload is overwritten by its sum: not before MPI is through with it.
  while (call.reduction_ && (!call.whole_ || call.sends_.done()) &&
         call.reduction_->advance(transport_, call.use_)) {
    const std::int64_t before = now_ns();
    const Range chunk = call.reduction_->sum(call.spec_, transport_, call.use_);
    const std::int64_t spent = now_ns() - before;
    call.timing_.move_ns += spent;
    summed_ns_ += spent;
    if (call.spec_.kind == CollectiveKind::kAllReduce && !call.whole_) send_result(call, chunk);
  }
  ask_for_results(call);
  call.receives_.advance(transport_, call.result_use_);
  if (!call.has_input()) return;
  if (!call.arrived_) {
    call.arrived_ = true;
    call.last_arrival_ = std::chrono::steady_clock::now();
  }
  // The output of an all_reduce is also what it sends: it may be changed when it is complete.
  const bool ready = call.spec_.kind != CollectiveKind::kAllReduce || call.sends_.done();
  if (ready && !call.complete_) {
    call.complete_ = true;
    call.timing_.completed_ns = now_ns();
  }
  call.released_ = call.sends_.done();
  if (call.released_ && call.reduction_) pool_.give_back(call.reduction_->take_staging());
}

/// `chunk` of this rank's slice of an all_reduce, to every peer.
void MpiEngine::send_result(MpiCall& call, Range chunk) {
  const std::size_t element = call.spec_.element_size();
  const std::int64_t begin = call.reduction_->own().front().full_offset + chunk.begin;
  const ByteRange range{call.spec_.target + static_cast<std::size_t>(begin) * element,
                        static_cast<std::size_t>(chunk.size()) * element};
  for (int step = 1; step < world_size(); ++step) {
    const int peer = (rank() + step) % world_size();
    call.sends_.add(transport_.send(peer, call.result_use_, {&range, 1}));
  }
}

/// Results replace what this rank has sent: each is asked for when MPI is through with that.
void MpiEngine::ask_for_results(MpiCall& call) {
  const std::size_t element = call.spec_.element_size();
  const std::size_t ready = std::min(call.slices_.size(), call.sends_.through());
  for (; call.slices_asked_ < ready; ++call.slices_asked_) {
    const MpiCall::Slice& slice = call.slices_[call.slices_asked_];
    const ByteRange range{
        call.spec_.target + static_cast<std::size_t>(slice.elements.begin) * element,
        static_cast<std::size_t>(slice.elements.size()) * element};
    call.receives_.add(transport_.receive(slice.peer, call.result_use_, {&range, 1}));
  }
}

/// The thread starts with the first call that has peers. Between short naps it helps calls that
/// nobody waits for; the naps get longer while there are none, and then it sleeps until it is
/// woken. (To wake it in every call would cost more than a small call.)
void MpiEngine::wake_progress() {
  if (world_size() == 1) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { progress(); });
  if (!asleep_.load()) return;
  const std::lock_guard lock(sleep_mutex_);
  wake_.notify_one();
}

void MpiEngine::progress() {
  microseconds nap = kShortNap;
  int idle_naps = 0;
  std::unique_lock sleep_lock(sleep_mutex_);
  while (!stop_.load()) {
    if (open_.load() > 0 && waiting_.load() == 0) {
      sleep_lock.unlock();
      try {
        poll();
      } catch (const std::exception& error) {
        AbortRecord record = job_->position_of(rank());
        record.message = error.what();
        job_->abort(record);  // unless it has been: waits say why
        return;
      }
      sleep_lock.lock();
      nap = kShortNap;
      idle_naps = 0;
    } else {
      nap = std::min(2 * nap, kLongNap);
      ++idle_naps;
    }
    if (idle_naps < kNapsBeforeSleep) {
      wake_.wait_for(sleep_lock, nap, [this] { return stop_.load(); });
      continue;
    }
    asleep_.store(true);
    wake_.wait(sleep_lock, [this] { return stop_.load() || open_.load() > 0; });
    asleep_.store(false);
    nap = kShortNap;
    idle_naps = 0;
  }
}

void MpiEngine::shut_down() {
  stop_.store(true);
  {
    const std::lock_guard lock(sleep_mutex_);
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex());
  shut_down_ = true;
  if (pending_.empty()) return;
  // MPI may still write to what these calls hold: it is kept to the end of the process.
  transport_.abandon();
  for (const auto& call : pending_) {
    call->sends_.drop(transport_);
    call->receives_.drop(transport_);
    if (call->reduction_) {
      call->reduction_->drop(transport_);
      transport_.runtime().keep(
          std::make_shared<SymmetricMemory>(call->reduction_->take_staging()));
    }
  }
  pending_.clear();
}

}  // namespace shardbench::comm
