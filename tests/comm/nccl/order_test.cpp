// What runs after what: the caller's stream and the communicators' own.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/comm/nccl/harness.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;

constexpr CallTag kTag{"order", Phase::kBackward};

TEST(NcclOrder, ACallReadsWhatTheCallersStreamWroteBefore) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    data.set(0, rank.rank + 1);  // queued, not executed
    const Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    data.set(0, 100);  // queued later: must not be seen
    EXPECT_EQ(rank.gpus.calls(rank.rank).size(), 1u);
    while (!work.done()) std::this_thread::yield();
    EXPECT_EQ(load_element(DType::kFloat32, data.data()), 3);
    rank.gpus.synchronize(rank.hooks.current_stream());
  });
}

TEST(NcclOrder, TheCallersStreamReadsTheResultAfterWait) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    data.set(0, rank.rank + 1);
    Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    work.wait();
    EXPECT_EQ(data.read()[0], 3);
  });
}

TEST(NcclOrder, WithoutAWaitTheCallersStreamGoesOn) {
  NcclDouble gpus(2);
  std::atomic<bool> read{false};
  run_nccl(gpus, 2, [&read](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    data.set(0, rank.rank + 1);
    // Rank 1 brings its part only when rank 0 has read what is there without it.
    while (rank.rank == 1 && !read) std::this_thread::yield();
    const Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    if (rank.rank == 0) {
      EXPECT_EQ(data.read()[0], 1);
      read = true;
    }
    while (!work.done()) std::this_thread::yield();
  });
}

TEST(NcclOrder, WaitDoesNotBlockTheHost) {
  NcclDouble gpus(2);
  std::atomic<bool> waited{false};
  run_nccl(gpus, 2, [&waited](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    data.set(0, 1);
    // Rank 1 brings its part only when rank 0 is through with its waits.
    while (rank.rank == 1 && !waited) std::this_thread::yield();
    Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    work.wait();
    work.wait_released();
    if (rank.rank == 0) waited = true;
    EXPECT_EQ(data.read()[0], 2);
  });
}

TEST(NcclOrder, AccumulationComesAfterTheReductionAndBeforeTheReader) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    const ShardLayout layout = ShardLayout::contiguous({2, 1});
    DeviceBuffer full(rank, DType::kFloat32, 3);
    DeviceBuffer shard(rank, DType::kFloat32, layout.count(rank.rank));
    for (std::int64_t i = 0; i < layout.count(rank.rank); ++i) shard.set(i, 10);
    std::vector<Work> works;
    for (int round = 1; round <= 3; ++round) {  // one waits for the other on the device only
      for (int i = 0; i < 3; ++i) full.set(i, round * (i + 1));
      works.push_back(rank.comm.reduce_scatter(layout, full.buffer(), shard.buffer(),
                                               ReduceOp::kSum, true, kTag));
      works.back().wait();
    }
    const std::vector<double> values = shard.read();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double element = rank.rank == 0 ? static_cast<double>(i + 1) : 3;
      EXPECT_EQ(values[i], 10 + 2 * element * (1 + 2 + 3));
    }
  });
}

TEST(NcclOrder, QuiesceCompletesWhatNobodyWaitedFor) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    std::vector<float> host(4, static_cast<float>(rank.rank + 1));
    DeviceBuffer device(rank, DType::kFloat32, 1);
    device.set(0, 5);
    rank.comm.all_reduce(device.buffer(), ReduceOp::kSum, kTag);
    rank.comm.all_reduce({host.data(), 4, DType::kFloat32}, ReduceOp::kSum, kTag);
    rank.comm.quiesce();
    EXPECT_EQ(host, std::vector<float>(4, 3));
    EXPECT_EQ(load_element(DType::kFloat32, device.data()), 10);
  });
}

TEST(NcclOrder, HostResultsAreThereAfterWait) {
  NcclDouble gpus(3);
  run_nccl(gpus, 3, [](NcclRank& rank) {
    std::vector<std::int64_t> values(3, 0);
    values[static_cast<std::size_t>(rank.rank)] = 7 + rank.rank;
    Work work = rank.comm.all_reduce({values.data(), 3, DType::kInt64}, ReduceOp::kMax, kTag);
    work.wait();
    EXPECT_EQ(values, (std::vector<std::int64_t>{7, 8, 9}));
    EXPECT_TRUE(work.done());
    EXPECT_GT(work.state()->timing().completed_ns, 0);
    EXPECT_EQ(work.last_arrival(), work.last_arrival());
  });
}

/// Host memory that one call after the other adds to, with no wait between.
TEST(NcclOrder, HostResultsAreThereForTheNextCall) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    const std::vector<float> full = {1, 2};
    float shard = 10;
    for (int round = 0; round < 3; ++round) {
      rank.comm.reduce_scatter(ShardLayout::even(2, 2), {full.data(), 2, DType::kFloat32},
                               {&shard, 1, DType::kFloat32}, ReduceOp::kSum, true, kTag);
    }
    rank.comm.quiesce();
    EXPECT_EQ(shard, 10 + 3 * 2 * (rank.rank + 1));
  });
}

/// Two communicators at work at once: the second is through while the first still waits for a rank.
TEST(NcclOrder, CommunicatorsDoNotWaitForEachOther) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    const std::unique_ptr<Communicator> second = rank.another();
    DeviceBuffer slow(rank, DType::kFloat32, 1);
    DeviceBuffer quick(rank, DType::kFloat32, 1);
    slow.set(0, 1);
    quick.set(0, 2);
    Work first_work;
    if (rank.rank == 0) first_work = rank.comm.all_reduce(slow.buffer(), ReduceOp::kSum, kTag);
    Work second_work = second->all_reduce(quick.buffer(), ReduceOp::kSum, kTag);
    second_work.wait();
    EXPECT_EQ(quick.read()[0], 4);
    if (rank.rank == 1) first_work = rank.comm.all_reduce(slow.buffer(), ReduceOp::kSum, kTag);
    first_work.wait();
    EXPECT_EQ(slow.read()[0], 2);
  });
}

TEST(NcclOrder, WorkOutlivesItsCommunicator) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    data.set(0, 1);
    Work work;
    {
      const std::unique_ptr<Communicator> brief = rank.another();
      work = brief->all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    }
    work.wait();  // dropping the communicator has completed it
    EXPECT_TRUE(work.done());
    EXPECT_EQ(data.read()[0], 2);
  });
}

}  // namespace
}  // namespace shardbench::comm
