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

/// One rank's port: calls enter it in the order in which they were issued.
class Port {
 public:
  explicit Port(LinkModel link) : link_(link) {}
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
  std::deque<std::shared_ptr<LinkedCall>> queue_;
  std::shared_ptr<LinkedCall> latest_;  ///< to finish, of those that have their times
};

class LinkedCall : public Work::State {
 public:
  LinkedCall(std::shared_ptr<Port> port, std::shared_ptr<Work::State> inner, int rounds,
             AlgoBytes bytes)
      : port_(std::move(port)), inner_(std::move(inner)), rounds_(rounds), bytes_(bytes) {}

  void wait(Deadline deadline) override {
    inner_->wait(deadline);
    port_->resolve(*this, deadline);
    sleep(deadline);
  }
  void wait_released(Deadline deadline) override {
    wait(deadline);
    inner_->wait_released(deadline);
  }
  bool done() override {
    if (!inner_->done()) return false;
    port_->resolve_arrived();
    return resolved_ && Clock::now() >= use_.finish;
  }
  void wait_arrived(Deadline deadline) override { inner_->wait_arrived(deadline); }
  bool arrived() override { return inner_->arrived(); }
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
  int rounds_;
  AlgoBytes bytes_;
  bool resolved_ = false;
  PortUse use_{};
  std::int64_t slept_ns_ = 0;
};

void Port::take_front() {
  LinkedCall& call = *queue_.front();
  call.use_ = schedule(link_, call.rounds_, call.bytes_, call.inner_->last_arrival(), free_);
  call.resolved_ = true;
  free_ = call.use_.free;
  if (!latest_ || call.use_.finish >= latest_->use_.finish) latest_ = queue_.front();
  queue_.pop_front();
}

void Port::drain() {
  if (!queue_.empty()) {
    const auto newest = queue_.back();
    newest->wait({});
  }
  if (const auto latest = latest_) latest->wait({});
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
    queue_.front()->inner_->wait_arrived(deadline);
    take_front();
  }
}

void Port::resolve_arrived() {
  while (!queue_.empty() && queue_.front()->inner_->arrived()) take_front();
}

class LinkCommunicator : public Decorator<Communicator> {
 public:
  LinkCommunicator(std::unique_ptr<Communicator> inner, LinkModel link)
      : Decorator(std::move(inner)), port_(std::make_shared<Port>(link)) {}
  ~LinkCommunicator() override { port_->shut_down(); }

  void quiesce() override {
    port_->drain();
    inner_->quiesce();
  }

 protected:
  Work after_issue(const CallShape& shape, CallTag, Clock::time_point, Work work) override {
    if (!work.valid()) return work;
    port_->resolve_arrived();  // keeps the queue short where nobody waits
    auto call =
        std::make_shared<LinkedCall>(port_, work.state(), rounds_of(shape.kind, world_size()),
                                     algo_bytes(shape.kind, world_size(), rank(), shape.root,
                                                shape.payload_bytes, shape.part_bytes));
    port_->enqueue(call);
    return Work(std::move(call));
  }

 private:
  std::shared_ptr<Port> port_;
};

}  // namespace

std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, LinkModel link) {
  SHARDBENCH_CHECK(link.bytes_per_second > 0 && link.latency.count() >= 0);
  return std::make_unique<LinkCommunicator>(std::move(inner), link);
}

}  // namespace shardbench::comm
