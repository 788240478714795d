#include <time.h>

#include <algorithm>
#include <deque>

#include "common/comm/call_shape.h"
#include "common/comm/link.h"
#include "common/comm/link_schedule.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSlice = std::chrono::milliseconds(20);  // between two looks at the abort record

void sleep_until(Clock::time_point time) {
  const auto ns = std::chrono::nanoseconds(time.time_since_epoch()).count();
  timespec at{};
  at.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000);
  at.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);  // steady_clock on Linux
}

class LinkedCall;

/// What one rank sees of the network: calls enter it in the order in which they were issued.
class Port {
 public:
  explicit Port(const LinkModel& link) : link_(link) {}
  void enqueue(std::shared_ptr<LinkedCall> call) { queue_.push_back(std::move(call)); }
  /// Gives every call up to `last` its times; blocks until all ranks have issued them.
  void resolve(const LinkedCall& last, Deadline deadline);
  /// The same for what needs no blocking.
  void resolve_arrived();
  /// Returns when every call has passed.
  void drain();
  /// Lets go of all calls; their waits throw from now on.
  void shut_down();

 private:
  void take_front();

  LinkModel link_;
  PortFree free_{};
  PortFree host_free_{};  ///< of the port that this rank shares with others of its host
  std::deque<std::shared_ptr<LinkedCall>> queue_;
  std::shared_ptr<LinkedCall> latest_;  ///< to finish, of those that have their times
};

class LinkedCall : public Work::State {
 public:
  LinkedCall(std::shared_ptr<Port> port, std::shared_ptr<Work::State> inner, const CallLoad& load)
      : port_(std::move(port)), inner_(std::move(inner)), load_(load) {}

  void wait(Goal goal, Deadline deadline) override {
    if (goal != Goal::kArrived) {
      inner_->wait(Goal::kComplete, deadline);
      port_->resolve(*this, deadline);
      sleep(deadline);
    }
    if (goal != Goal::kComplete) inner_->wait(goal, deadline);
  }
  bool reached(Goal goal) override {
    if (!inner_->reached(goal)) return false;
    if (goal == Goal::kArrived) return true;
    port_->resolve_arrived();
    return resolved_ && Clock::now() >= use_.finish;
  }
  Clock::time_point last_arrival() const override { return inner_->last_arrival(); }
  void poll() override { inner_->poll(); }
  WorkTiming timing() const override {
    WorkTiming timing = inner_->timing();
    timing.peer_wait_ns += slept_ns_;
    const std::int64_t finish = std::chrono::nanoseconds(use_.finish.time_since_epoch()).count();
    timing.completed_ns =
        !resolved_ || timing.completed_ns < 0 ? -1 : std::max(timing.completed_ns, finish);
    return timing;
  }

 private:
  friend class Port;

  /// In slices: an abort is noticed, and peers that need this rank's part are served.
  void sleep(Deadline deadline) {
    const auto start = Clock::now();
    if (start >= use_.finish) return;
    for (auto now = start; now < use_.finish; now = Clock::now()) {
      if (deadline && now >= *deadline) {
        throw JobAborted(fmt::format("the emulated link needs {} ms more than the deadline allows",
                                     (use_.finish - now) / std::chrono::milliseconds(1)));
      }
      auto until = std::min<Clock::time_point>(use_.finish, now + kSlice);
      if (deadline) until = std::min(until, *deadline);
      sleep_until(until);
      inner_->poll();
    }
    slept_ns_ += std::chrono::nanoseconds(Clock::now() - start).count();
  }

  std::shared_ptr<Port> port_;
  std::shared_ptr<Work::State> inner_;
  CallLoad load_;
  bool resolved_ = false;
  PortUse use_{};
  std::int64_t slept_ns_ = 0;
};

void Port::take_front() {
  LinkedCall& call = *queue_.front();
  Clock::time_point ready = call.inner_->last_arrival();
  if (link_.hosts) {
    // Every rank of the host follows its port by itself: all see the same calls and arrivals.
    const PortUse host = schedule(link_.hosts->speed, call.load_.host, ready, host_free_);
    host_free_ = host.free;
    ready = host.finish;
  }
  call.use_ = schedule(link_, call.load_.rank, ready, free_);
  call.resolved_ = true;
  free_ = call.use_.free;
  if (!latest_ || call.use_.finish >= latest_->use_.finish) latest_ = queue_.front();
  queue_.pop_front();
}

void Port::drain() {
  if (!queue_.empty()) {
    const auto newest = queue_.back();
    newest->wait(Work::State::Goal::kComplete, {});
  }
  if (const auto latest = latest_) latest->wait(Work::State::Goal::kComplete, {});
}

void Port::shut_down() {
  queue_.clear();
  latest_.reset();
}

void Port::resolve(const LinkedCall& last, Deadline deadline) {
  while (!last.resolved_) {
    if (queue_.empty()) {
      throw JobAborted("a call was waited for after its communicator had been dropped");
    }
    queue_.front()->inner_->wait(Work::State::Goal::kArrived, deadline);
    take_front();
  }
}

void Port::resolve_arrived() {
  while (!queue_.empty() && queue_.front()->inner_->reached(Work::State::Goal::kArrived))
    take_front();
}

class LinkCommunicator : public Decorator<Communicator> {
 public:
  LinkCommunicator(std::unique_ptr<Communicator> inner, const LinkModel& link)
      : Decorator(std::move(inner)), link_(link), port_(std::make_shared<Port>(link)) {}
  ~LinkCommunicator() override { port_->shut_down(); }

  void quiesce() override {
    port_->drain();
    inner_->quiesce();
  }

 protected:
  Work after_issue(const CallShape& shape, CallTag, Clock::time_point, Work work) override {
    if (!work.valid()) return work;
    port_->resolve_arrived();  // keeps the queue short where nobody waits
    auto call = std::make_shared<LinkedCall>(port_, work.state(),
                                             load_of(link_, shape, world_size(), rank()));
    port_->enqueue(call);
    return Work(std::move(call));
  }

 private:
  LinkModel link_;
  std::shared_ptr<Port> port_;
};

}  // namespace

std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner,
                                        const LinkModel& link) {
  SHARDBENCH_CHECK(link.bytes_per_second > 0 && link.latency.count() >= 0);
  validate(link, inner->world_size());
  return std::make_unique<LinkCommunicator>(std::move(inner), link);
}

}  // namespace shardbench::comm
