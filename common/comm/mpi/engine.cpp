#include "common/comm/mpi/engine.h"

#include <algorithm>
#include <exception>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using sharding::Range;
using std::chrono::microseconds;

constexpr int kSpins = 2000;
constexpr int kSpinsCrowded = 20;  // more ranks than cores: the one awaited needs this core

constexpr microseconds kShortNap{50};
constexpr microseconds kLongNap{1000};
constexpr int kNapsBeforeSleep = 100;

/// Smaller payloads are posted faster than a clock is worth reading.
constexpr std::size_t kTimedBytes = std::size_t{64} << 10;
constexpr std::size_t kMostSpare = 16;

std::int64_t to_ns(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// Nothing to wait for: the root of a broadcast, and all but the root of a reduce.
bool needs_no_peer(const CallSpec& spec, int rank) {
  return (spec.kind == CollectiveKind::kBroadcast && spec.root == rank) ||
         (spec.kind == CollectiveKind::kReduce && spec.root != rank);
}

}  // namespace

MpiEngine::MpiEngine(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<Job> job,
                     MpiOptions options, const HostShare& share)
    : job_(std::move(job)),
      options_(options),
      transport_(std::move(runtime)),
      tags_(transport_.max_tag()) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  spin_limit_ = world_size() <= cores ? kSpins : kSpinsCrowded;
  if (share.host_job == nullptr || options_.route == MpiRoute::kFlat) return;
  std::optional<HostGrid> grid = make_grid(share.hosts, rank());
  if (!grid || grid->per_host == 1) return;
  if (grid->hosts == 1 && options_.route == MpiRoute::kAuto) return;  // asked for MPI: gets it
  const auto host_job = as_segment_job(share.host_job);
  const int local = grid->local;
  ground_.emplace(*std::move(grid), host_job, host_job->heap(local), transport_, options_);
}

MpiEngine::~MpiEngine() { shut_down(); }

void MpiCall::begin(CallSpec spec, std::int64_t sequence) {
  spec_ = std::move(spec);
  sequence_ = sequence;
  sends_.clear();
  receives_.clear();
  slices_.clear();
  slices_asked_ = 0;
  relay_ = nullptr;
  whole_ = complete_ = arrived_ = released_ = false;
  timing_ = {};
}

/// A finished call that nobody holds any more, or a new one.
std::shared_ptr<MpiCall> MpiEngine::next_call(CallSpec spec) {
  std::shared_ptr<MpiCall> call;
  const auto unused = [](const auto& spare) { return spare.use_count() == 1; };
  const auto found = std::find_if(spare_.begin(), spare_.end(), unused);
  if (found == spare_.end()) {
    call = std::make_shared<MpiCall>(shared_from_this());
  } else {
    call = std::move(*found);
    std::swap(*found, spare_.back());
    spare_.pop_back();
  }
  call->begin(std::move(spec), next_sequence_++);
  const CallSpec& own = call->spec_;
  const std::uint64_t fingerprint = fingerprint_of(own);
  call->use_ = {.tag = tags_.make(call->sequence_, own.kind, fingerprint, false),
                .kind = own.kind,
                .phase = own.phase,
                .element_size = own.element_size()};
  call->result_use_ = call->use_;
  call->result_use_.tag = tags_.make(call->sequence_, own.kind, fingerprint, true);
  return call;
}

std::shared_ptr<MpiCall> MpiEngine::issue(CallSpec spec) {
  check_alive();
  while (open_.load() >= TagLayout::kMostOpen) wait_for_oldest();
  std::shared_ptr<MpiCall> call;
  {
    const std::lock_guard lock(mutex());
    SHARDBENCH_CHECK(!shut_down_);
    call = next_call(std::move(spec));
    const CallSpec& own = call->spec_;
    const bool at_once = needs_no_peer(own, rank());
    const bool timed = static_cast<std::size_t>(own.count) * own.element_size() >= kTimedBytes;
    const Clock::time_point before = timed ? Clock::now() : Clock::time_point{};
    guarded(*call, [&] { post(*call); });
    if (timed || at_once) {
      const Clock::time_point after = Clock::now();
      if (timed) call->timing_.move_ns += to_ns(after - before);
      call->changed_ = after;
      if (at_once) {
        call->complete_ = true;
        call->timing_.completed_ns = to_ns(after.time_since_epoch());
      }
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

void MpiEngine::check_alive() {
  try {
    job_->check_alive();
  } catch (const JobAborted&) {
    transport_.runtime().abandon();
    throw;
  }
}

void MpiEngine::poll_locked() {
  check_alive();
  if (shut_down_) return;
  for (const auto& call : pending_) guarded(*call, [&] { advance(*call); });
  std::size_t kept = 0;
  for (auto& call : pending_) {
    if (!call->released_) {
      std::swap(pending_[kept++], call);
    } else if (spare_.size() < kMostSpare) {
      spare_.push_back(std::move(call));
    }
  }
  if (kept == pending_.size()) return;
  pending_.resize(kept);
  open_.store(kept);
}

void MpiEngine::advance(MpiCall& call) {
  if (call.relay_ != nullptr) return advance_relayed(call);
  const bool is_all_reduce = call.spec_.kind == CollectiveKind::kAllReduce;
  call.sends_.advance(transport_, call.use_);
  // An exchanged payload is overwritten by its sum: not before MPI is through with it.
  while ((!call.whole_ || call.sends_.done()) && call.reduction_.advance(transport_, call.use_)) {
    sum_chunk(call);
  }
  if (call.slices_asked_ < call.slices_.size()) ask_for_results(call);
  call.receives_.advance(transport_, call.result_use_);
  if (!call.has_input()) return;
  const bool sent = call.sends_.done();
  // The output of an all_reduce is also what it sends: it may be changed when it is complete.
  settle(call, !is_all_reduce || sent, sent);
  if (sent) pool_.give_back(call.reduction_.take_staging());
}

void MpiEngine::advance_relayed(MpiCall& call) {
  Relay& relay = *call.relay_;
  relay.advance(call.spec_);
  const std::int64_t moved = relay.take_moved_ns();
  call.timing_.move_ns += moved;
  summed_ns_ += moved;
  if (!relay.has_output()) return;
  settle(call, relay.is_complete(), relay.is_released());
  if (call.released_) relay.finish();
}

/// Notes how far a call is that has all that it needs.
void MpiEngine::settle(MpiCall& call, bool complete, bool released) {
  const bool completes = complete && !call.complete_;
  if (call.arrived_ && !completes && !released) return;
  call.changed_ = Clock::now();
  if (!call.arrived_) call.last_arrival_ = call.changed_;
  call.arrived_ = true;
  if (completes) call.timing_.completed_ns = to_ns(call.changed_.time_since_epoch());
  call.complete_ |= completes;
  call.released_ = released;
}

void MpiEngine::sum_chunk(MpiCall& call) {
  const bool timed = call.reduction_.bytes() >= kTimedBytes;
  const Clock::time_point before = timed ? Clock::now() : Clock::time_point{};
  const Range chunk = call.reduction_.sum(call.spec_, transport_, call.use_);
  if (timed) {
    const std::int64_t spent = to_ns(Clock::now() - before);
    call.timing_.move_ns += spent;
    summed_ns_ += spent;
  }
  if (call.spec_.kind == CollectiveKind::kAllReduce && !call.whole_) send_result(call, chunk);
}

/// `chunk` of this rank's slice of an all_reduce, to every peer.
void MpiEngine::send_result(MpiCall& call, Range chunk) {
  const std::size_t element = call.spec_.element_size();
  const std::int64_t begin = call.reduction_.full_offset() + chunk.begin;
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
  spare_.clear();
  if (job_->aborted()) transport_.runtime().abandon();
  if (pending_.empty()) return;
  // MPI may still write to what these calls hold: it is kept to the end of the process.
  transport_.runtime().abandon();
  transport_.abandon();
  for (const auto& call : pending_) {
    call->sends_.drop(transport_);
    call->receives_.drop(transport_);
    call->reduction_.drop(transport_);
    if (call->relay_ != nullptr) {
      call->relay_->drop();
      transport_.runtime().keep(
          std::make_shared<std::vector<SymmetricMemory>>(call->relay_->take_memory()));
    }
    auto staging = std::make_shared<SymmetricMemory>(call->reduction_.take_staging());
    transport_.runtime().keep(std::move(staging));
  }
  pending_.clear();
}

}  // namespace shardbench::comm
