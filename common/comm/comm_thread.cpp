#include "common/comm/comm_thread.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/comm/call_spec.h"
#include "common/core/error.h"
#include "common/core/rank_context.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Goal = Work::State::Goal;

/// How long the thread waits for peers before it looks for new calls.
constexpr std::chrono::nanoseconds kPatience = std::chrono::microseconds(200);

std::int64_t ns_of(Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

/// The same call once more, on another communicator of the same rank.
Work issue_again(Communicator& comm, const CallSpec& spec) {
  const sharding::ShardLayout& layout = spec.layout;
  const CallTag tag{spec.label, spec.phase};
  const auto source = [&](std::int64_t count) -> ConstBuffer {
    return {spec.source, count, spec.dtype};
  };
  const auto target = [&](std::int64_t count) -> Buffer {
    return {spec.target, count, spec.dtype};
  };
  const auto shard = [&] { return layout.shard_extent(comm.rank()); };
  switch (spec.kind) {
    case CollectiveKind::kAllGather:
      return comm.all_gather(layout, source(shard()), target(layout.full_extent()), tag);
    case CollectiveKind::kBroadcast:
      return comm.broadcast(layout, spec.root, source(shard()), target(layout.full_extent()), tag);
    case CollectiveKind::kReduceScatter:
      return comm.reduce_scatter(layout, source(layout.full_extent()), target(shard()), spec.op,
                                 spec.accumulate, tag);
    case CollectiveKind::kReduce:
      return comm.reduce(layout, spec.root, source(layout.full_extent()), target(shard()), spec.op,
                         spec.accumulate, tag);
    case CollectiveKind::kAllReduce:
      return comm.all_reduce(target(spec.count), spec.op, tag);
    case CollectiveKind::kBarrier:
      return comm.barrier(tag);
  }
  return {};
}

class CarriedCall;

/// The thread, and what its communicator's caller has asked of it.
class Carrier {
 public:
  explicit Carrier(Communicator& inner) : inner_(inner), thread_([this] { run(); }) {}

  void issue(std::shared_ptr<CarriedCall> call);
  /// Waits until every call has been issued, then until every rank has finished them.
  void quiesce();
  /// Waits until every call has been issued.
  void settle();
  /// Ends the thread: waits that are not over fail from now on.
  void stop();

 private:
  friend class CarriedCall;

  void run();
  void turn(std::unique_lock<std::mutex>& lock);
  bool has_work() const {
    return stop_ || quiesce_ || blocked_ != nullptr || polled_ != nullptr || !unissued_.empty() ||
           !open_.empty();
  }
  /// Hands new calls to the inner communicator.
  void issue_new(std::unique_lock<std::mutex>& lock);
  /// Notes which goals the open calls have reached.
  void look(std::unique_lock<std::mutex>& lock);
  void throw_if_ended() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  Communicator& inner_;
  RankContext context_ = rank_context();
  std::mutex mutex_;
  std::condition_variable asked_;    ///< for the thread
  std::condition_variable changed_;  ///< for the caller
  // With the mutex held:
  std::deque<std::shared_ptr<CarriedCall>> unissued_;
  std::deque<std::shared_ptr<CarriedCall>> open_;  ///< some goal is still of interest
  std::shared_ptr<CarriedCall> blocked_;           ///< the caller stands in a wait for this one
  Deadline deadline_;
  std::shared_ptr<CarriedCall> polled_;  ///< the caller's Work::State::poll
  bool quiesce_ = false;
  bool stop_ = false;
  std::exception_ptr error_;  ///< ended the thread
  std::thread thread_;
};

/// One call as its caller sees it, guarded by the carrier's mutex; only the thread touches
/// `inner_`.
class CarriedCall : public Work::State, public std::enable_shared_from_this<CarriedCall> {
 public:
  CarriedCall(std::shared_ptr<Carrier> carrier, CallSpec spec)
      : carrier_(std::move(carrier)), spec_(std::move(spec)) {}

  void wait(Goal goal, Deadline deadline) override {
    std::unique_lock lock(carrier_->mutex_);
    if (at(goal)) return;
    carrier_->throw_if_ended();
    const Clock::time_point start = Clock::now();
    carrier_->blocked_ = shared_from_this();
    carrier_->deadline_ = deadline;
    want(goal);
    carrier_->changed_.wait(lock, [&] { return at(goal) || carrier_->error_ != nullptr; });
    carrier_->blocked_.reset();
    const Span span{ns_of(start), ns_of(Clock::now())};
    timing_.blocked.push_back(span);
    timing_.peer_wait_ns += span.to_ns - span.from_ns;
    if (!at(goal)) carrier_->throw_if_ended();
  }

  bool reached(Goal goal) override {
    const std::lock_guard lock(carrier_->mutex_);
    if (at(goal)) return true;
    carrier_->throw_if_ended();
    want(goal);
    return false;
  }

  Clock::time_point last_arrival() const override {
    const std::lock_guard lock(carrier_->mutex_);
    return last_arrival_;
  }

  void poll() override {  // the thread does, soon: that the job has ended shows the next time
    const std::lock_guard lock(carrier_->mutex_);
    carrier_->throw_if_ended();
    carrier_->polled_ = shared_from_this();
    carrier_->asked_.notify_one();
  }

  WorkTiming timing() const override {
    const std::lock_guard lock(carrier_->mutex_);
    return timing_;
  }

 private:
  friend class Carrier;

  static std::size_t index(Goal goal) { return static_cast<std::size_t>(goal); }
  bool at(Goal goal) const { return reached_[index(goal)]; }
  /// Makes the thread look after this goal, too.
  void want(Goal goal) {
    wanted_[index(goal)] = true;
    auto& open = carrier_->open_;
    const auto self = shared_from_this();
    if (inner_ != nullptr && std::find(open.begin(), open.end(), self) == open.end()) {
      open.push_back(self);
    }
    carrier_->asked_.notify_one();
  }
  /// A goal that is wanted and not reached, if there is one.
  std::optional<Goal> next_goal() const {
    for (const Goal goal : {Goal::kComplete, Goal::kReleased, Goal::kArrived}) {
      if (wanted_[index(goal)] && !at(goal)) return goal;
    }
    return std::nullopt;
  }
  void note(Goal goal) {
    reached_[index(goal)] = true;
    if (goal == Goal::kArrived) last_arrival_ = inner_->last_arrival();
    if (goal != Goal::kComplete || timing_.completed_ns >= 0) return;
    const WorkTiming timing = inner_->timing();
    timing_.completed_ns = timing.completed_ns;
    timing_.background = {timing.completed_ns - timing.move_ns, timing.completed_ns};
  }

  std::shared_ptr<Carrier> carrier_;
  CallSpec spec_;
  std::shared_ptr<Work::State> inner_;  ///< once issued
  bool reached_[3] = {false, false, false};
  bool wanted_[3] = {true, false, false};  ///< complete: always, so that its bytes move
  Clock::time_point last_arrival_{};
  WorkTiming timing_;
};

void Carrier::issue(std::shared_ptr<CarriedCall> call) {
  const std::lock_guard lock(mutex_);
  throw_if_ended();
  unissued_.push_back(std::move(call));
  asked_.notify_one();
}

void Carrier::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unissued_.empty() || error_ != nullptr; });
  throw_if_ended();
}

void Carrier::quiesce() {
  std::unique_lock lock(mutex_);
  throw_if_ended();
  quiesce_ = true;
  asked_.notify_one();
  changed_.wait(lock, [&] { return !quiesce_ || error_ != nullptr; });
  throw_if_ended();
}

void Carrier::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    asked_.notify_one();
  }
  thread_.join();
}

void Carrier::run() {
  rank_context() = context_;
  std::unique_lock lock(mutex_);
  try {
    for (;;) {
      asked_.wait(lock, [&] { return has_work(); });
      if (stop_) {
        throw JobAborted("a call was waited for after its communicator had been dropped");
      }
      turn(lock);
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    error_ = std::current_exception();
    unissued_.clear();
    open_.clear();
    changed_.notify_all();
  }
}

void Carrier::turn(std::unique_lock<std::mutex>& lock) {
  issue_new(lock);
  if (quiesce_) {
    lock.unlock();
    inner_.quiesce();
    lock.lock();
    quiesce_ = false;
  } else if (blocked_ != nullptr && blocked_->next_goal()) {
    // Nothing new can come now: the backend's own wait, with its deadline and its errors.
    const std::shared_ptr<CarriedCall> call = blocked_;
    const Goal goal = *call->next_goal();
    const Deadline deadline = deadline_;
    lock.unlock();
    call->inner_->wait(goal, deadline);
    lock.lock();
  } else if (!open_.empty()) {
    const std::shared_ptr<CarriedCall> first = open_.front();
    const Goal goal = first->next_goal().value_or(Goal::kComplete);
    lock.unlock();
    first->inner_->wait_some(goal, kPatience);
    lock.lock();
  } else if (polled_ != nullptr) {
    const std::shared_ptr<CarriedCall> call = polled_;
    lock.unlock();
    call->inner_->poll();
    lock.lock();
  }
  polled_.reset();
  look(lock);
  if (blocked_ != nullptr && !blocked_->next_goal()) blocked_.reset();
  changed_.notify_all();
}

void Carrier::issue_new(std::unique_lock<std::mutex>& lock) {
  while (!unissued_.empty()) {
    const std::shared_ptr<CarriedCall> call = unissued_.front();
    lock.unlock();
    std::shared_ptr<Work::State> inner = issue_again(inner_, call->spec_).state();
    lock.lock();
    call->inner_ = std::move(inner);
    open_.push_back(call);
    unissued_.pop_front();
  }
}

void Carrier::look(std::unique_lock<std::mutex>& lock) {
  const std::vector<std::shared_ptr<CarriedCall>> calls(open_.begin(), open_.end());
  for (const std::shared_ptr<CarriedCall>& call : calls) {
    for (const Goal goal : {Goal::kComplete, Goal::kReleased, Goal::kArrived}) {
      if (call->at(goal) || !call->wanted_[CarriedCall::index(goal)]) continue;
      lock.unlock();
      const bool reached = call->inner_->reached(goal);
      lock.lock();
      if (reached) call->note(goal);
    }
  }
  std::erase_if(open_, [](const auto& call) { return !call->next_goal(); });
}

class ThreadedCommunicator : public SpecCommunicator {
 public:
  explicit ThreadedCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)),
        exceptions_(std::uncaught_exceptions()),
        carrier_(std::make_shared<Carrier>(*inner_)) {}

  ~ThreadedCommunicator() override {
    // Peers may still need calls whose Work was dropped. Not when an exception passes: then the
    // job is about to end.
    if (std::uncaught_exceptions() == exceptions_) {
      try {
        carrier_->settle();
      } catch (const std::exception&) {  // the job has been aborted, its record says why
      }
    }
    carrier_->stop();
  }

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view backend() const override { return inner_->backend(); }
  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    return inner_->symmetric_empty(bytes);
  }
  SymmetricMemory shared_empty(std::size_t bytes, std::size_t own_bytes) override {
    carrier_->quiesce();  // the thread is idle then: the calls that this takes run here
    return inner_->shared_empty(bytes, own_bytes);
  }
  void abort(std::string_view message) override { inner_->abort(message); }
  void quiesce() override { carrier_->quiesce(); }

 protected:
  Work issue(CallSpec spec) override {
    auto call = std::make_shared<CarriedCall>(carrier_, std::move(spec));
    carrier_->issue(call);
    return Work(std::move(call));
  }

 private:
  std::unique_ptr<Communicator> inner_;
  int exceptions_;
  std::shared_ptr<Carrier> carrier_;
};

}  // namespace

std::unique_ptr<Communicator> with_comm_thread(std::unique_ptr<Communicator> inner) {
  if (inner->world_size() == 1) return inner;  // nothing to carry
  return std::make_unique<ThreadedCommunicator>(std::move(inner));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  return CPU_COUNT(&set);
}

}  // namespace shardbench::comm
