// The nccl backend over real CUDA and NCCL, on one device or more. Skipped only without a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/comm/nccl/device_memory.h"
#include "common/comm/nccl/device_timer.h"
#include "common/comm/nccl/load.h"
#include "common/comm/nccl/nccl.h"
#include "common/comm/nccl/over_group.h"
#include "common/core/error.h"
#include "tests/comm/conformance/suite.h"
#include "tests/comm/nccl/values.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using ::testing::HasSubstr;
using testing::Rank;

/// One rank in a process of its own: its device, and an NCCL communicator.
struct GpuRank {
  explicit GpuRank(Rank& rank) : shm(rank) {
    // Distinct in every rank, so that ranks may share a device.
    setenv("NCCL_HOSTID", ("rank" + std::to_string(rank.rank)).c_str(), 1);
    library = &gpu_library();
    device = choose_device(*library->cuda, rank.rank, rank.world_size);
    hooks = &hooks_on(*library, device);
    comm = another();
  }
  std::unique_ptr<Communicator> another() const {
    return make_nccl(shm.job, shm.rank,
                     {library->cuda, library->nccl, hooks, device, exchange_over(shm.comm), false});
  }
  bool accumulates() const { return library->torch != nullptr; }

  Rank& shm;
  const GpuLibrary* library = nullptr;
  int device = 0;
  DeviceHooks* hooks = nullptr;
  std::unique_ptr<Communicator> comm;
};

class NcclGpu : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto exists = [](const char* file) { return std::filesystem::exists(file); };
    if (!exists("/dev/nvidiactl") && !exists("/dev/dxg")) GTEST_SKIP() << "no CUDA device";
  }
  /// This process must not touch CUDA: its children could not use it.
  static JobOutcome outcome_of(const std::function<void(GpuRank&)>& body,
                               std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    return testing::outcome_of(GetParam(),
                               [&](Rank& rank) {
                                 GpuRank gpu(rank);
                                 body(gpu);
                                 return std::string();
                               },
                               {testing::RankMode::kForked, timeout});
  }
  static void run(const std::function<void(GpuRank&)>& body) {
    const JobOutcome outcome = outcome_of(body);
    EXPECT_TRUE(outcome.ok) << (outcome.failure ? outcome.failure->message : "interrupted");
  }
};

INSTANTIATE_TEST_SUITE_P(W, NcclGpu, ::testing::Values(1, 2));

TEST_P(NcclGpu, ValuesInDeviceMemory) {
  run([](GpuRank& gpu) {
    expect_values(*gpu.comm, {*gpu.library->cuda, *gpu.hooks, gpu.accumulates()}, false, true);
  });
}

TEST_P(NcclGpu, ValuesInHostMemory) {
  run([](GpuRank& gpu) {
    expect_values(*gpu.comm, {*gpu.library->cuda, *gpu.hooks, gpu.accumulates()}, true, true);
  });
}

/// Sixteen reductions of 64 MiB, queued without a wait between, over two communicators: what they
/// read and write is ordered by events alone.
TEST_P(NcclGpu, EventsOrderLargeCalls) {
  run([](GpuRank& gpu) {
    constexpr std::int64_t kCount = 16 << 20;
    constexpr std::size_t kBytes = kCount * 4;
    CudaApi& cuda = *gpu.library->cuda;
    const GpuStream compute = gpu.hooks->current_stream();
    const std::unique_ptr<Communicator> second = gpu.another();
    std::vector<float> host(kCount, 1);
    void* const data = gpu.hooks->allocate(kBytes, compute);
    cuda.memcpy_async(data, host.data(), kBytes, compute);
    DeviceTimer timer(cuda);
    timer.start(compute);
    for (int i = 0; i < 16; ++i) {
      Communicator& comm = i % 2 == 0 ? *gpu.comm : *second;
      comm.all_reduce({data, kCount, DType::kFloat32}, ReduceOp::kSum, {"large", Phase::kBackward})
          .wait();
    }
    timer.stop(compute);
    cuda.memcpy_async(host.data(), data, kBytes, compute);
    GpuEvent end = nullptr;
    cuda.event_create(end, false);
    cuda.event_record(end, compute);
    while (cuda.event_query(end) == CudaCode::kNotReady) std::this_thread::yield();
    const float want = gpu.shm.world_size == 1 ? 1.0F : 65536.0F;
    EXPECT_EQ(std::count(host.begin(), host.end(), want), kCount);
    EXPECT_GT(timer.ms(), 0);
    gpu.hooks->release(data, compute);
  });
}

TEST_P(NcclGpu, ConformanceInHostMemory) {
  run([](GpuRank& gpu) {
    if (!gpu.accumulates()) return;  // the suite adds to what is there
    conformance::Context context(*gpu.comm, nullptr, /*symmetric=*/false);
    for (const auto* cases : {&conformance::exact_cases(), &conformance::flight_cases()}) {
      for (const conformance::Case& each : *cases) {
        context.begin(each.name);
        each.run(context);
        gpu.comm->quiesce();
      }
    }
    for (const std::string& failure : context.failures()) ADD_FAILURE() << failure;
  });
}

/// A rank that does not bring its part: the other one's stream is freed and the job ends.
TEST_P(NcclGpu, AMissingRankIsATimeout) {
  if (GetParam() == 1) return;
  const JobOutcome outcome = outcome_of(
      [](GpuRank& gpu) {
        if (gpu.shm.rank == 1) {
          for (;;) {
            gpu.shm.job->check_alive();
            gpu.shm.job->set_progress(1, 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }
        gpu.comm->barrier({"meeting", Phase::kMetrics}).wait();
      },
      std::chrono::seconds(5));
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, AbortRecord::Reason::kTimeout);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_THAT(outcome.failure->message, HasSubstr("barrier #0 'meeting' (phase metrics): rank 0"));
}

TEST_P(NcclGpu, DeviceMemoryIsBookedByCategory) {
  run([](GpuRank& gpu) {
    if (gpu.library->torch == nullptr) return;
    memory::Tracker tracker;
    DeviceMemoryBook book(tracker);
    gpu.library->torch->watch_memory(&book);
    void* data = nullptr;
    {
      const memory::CategoryScope scope(memory::Category::kGrad);
      data = gpu.hooks->allocate(1 << 20, gpu.hooks->current_stream());
    }
    const auto grads = static_cast<std::size_t>(memory::Category::kGrad);
    EXPECT_GE(tracker.live()[grads], 1 << 20);
    EXPECT_GE(gpu.library->torch->memory(gpu.device).reserved, 1 << 20);
    gpu.hooks->release(data, gpu.hooks->current_stream());
    EXPECT_EQ(tracker.live()[grads], 0);
    gpu.library->torch->watch_memory(nullptr);
  });
}

}  // namespace
}  // namespace shardbench::comm
