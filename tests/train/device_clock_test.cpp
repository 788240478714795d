// Step times by a device's clock, and what profilers see of it.
#include "common/train/device_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/core/error.h"
#include "tests/comm/nccl/double.h"

namespace shardbench::train {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(DeviceClock, AddsUpWhatTheStreamTakesInEachPhase) {
  comm::NcclDouble gpus(1);
  {
    comm::DoubleHooks hooks(gpus);
    DeviceClock clock(gpus, hooks);
    for (int step = 0; step < 2; ++step) {
      for (int micro = 0; micro < 2; ++micro) {
        clock.enter(Phase::kForward);
        gpus.advance_clock(hooks.current_stream(), 3);
        clock.enter(Phase::kBackward);
        gpus.advance_clock(hooks.current_stream(), 5 + step);
        clock.stop();
        gpus.advance_clock(hooks.current_stream(), 100);  // of nobody
      }
      clock.enter(Phase::kOptimizer);
      gpus.advance_clock(hooks.current_stream(), 2);
      clock.stop();
      clock.stop();
      gpus.synchronize(hooks.current_stream());
      const StepClock::Times times = clock.read();
      EXPECT_EQ(times.forward_ns, 6 * kMs);
      EXPECT_EQ(times.backward_ns, 2 * (5 + step) * kMs);
      EXPECT_EQ(times.optimizer_ns, 2 * kMs);
      EXPECT_EQ(clock.read().forward_ns, 0);
    }
  }
  EXPECT_THAT(gpus.misuse(), ::testing::IsEmpty());
  EXPECT_EQ(gpus.live_objects(), 0u);
}

TEST(DeviceClock, IsNotReadBeforeTheEnd) {
  comm::NcclDouble gpus(1);
  comm::DoubleHooks hooks(gpus);
  DeviceClock clock(gpus, hooks);
  clock.enter(Phase::kForward);
  clock.stop();
  // Another thread's query runs nothing of the double's streams.
  std::thread([&] { EXPECT_THROW(clock.read(), InvariantError); }).join();
}

TEST(HostClock, AddsUpAndBeginsAnew) {
  const std::unique_ptr<StepClock> clock = host_clock();
  clock->enter(Phase::kForward);
  clock->enter(Phase::kBackward);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  clock->stop();
  const StepClock::Times times = clock->read();
  EXPECT_GE(times.backward_ns, 2 * kMs);
  EXPECT_EQ(times.optimizer_ns, 0);
  EXPECT_EQ(clock->read().backward_ns, 0);
}

TEST(ProfiledPosition, IsOneRangeAfterTheOther) {
  struct Log : comm::ProfilerRanges {
    std::vector<std::string> lines;
    std::uint64_t start(const char* name) override {
      lines.emplace_back(name);
      return lines.size();
    }
    void end(std::uint64_t range) override { lines.push_back("/" + std::to_string(range)); }
  } log;
  {
    ProfiledPosition position(&log);
    position.enter(Phase::kForward, "h.0");
    position.enter(Phase::kMetrics, "");
  }
  EXPECT_THAT(log.lines, ::testing::ElementsAre("forward h.0", "/1", "metrics", "/3"));
  ProfiledPosition(nullptr).enter(Phase::kForward, "h.0");
}

}  // namespace
}  // namespace shardbench::train
