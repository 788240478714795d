#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/comm/nccl/nccl.h"
#include "tests/comm/elements.h"
#include "tests/comm/nccl/double.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {

/// One rank of a test over the double: its hooks, and its nccl communicator.
struct NcclRank {
  int rank;
  int world_size;
  std::shared_ptr<Job> job;
  NcclDouble& gpus;
  DoubleHooks& hooks;
  Communicator& comm;

  /// A further communicator, of all ranks.
  std::unique_ptr<Communicator> another() { return make(); }
  std::function<std::unique_ptr<Communicator>()> make;
};

/// How the ranks ended. `on_host`: symmetric memory is the host's.
inline JobOutcome outcome_of_nccl(NcclDouble& gpus, int world_size,
                                  const std::function<void(NcclRank&)>& body,
                                  const testing::RankOptions& options = {}, bool on_host = false) {
  const auto run = [&](testing::Rank& shm) {
    DoubleHooks hooks(gpus);
    const auto make = [&] {
      return make_nccl(shm.job, shm.rank,
                       {&gpus, &gpus, &hooks, shm.rank, exchange_over(shm.comm), on_host});
    };
    const std::unique_ptr<Communicator> comm = make();
    NcclRank rank{shm.rank, shm.world_size, shm.job, gpus, hooks, *comm, make};
    body(rank);
    return std::string();
  };
  return testing::outcome_of(world_size, run, options);
}

/// The same where all must go well, to the last object.
inline void run_nccl(NcclDouble& gpus, int world_size, const std::function<void(NcclRank&)>& body) {
  const JobOutcome outcome = outcome_of_nccl(gpus, world_size, body);
  EXPECT_TRUE(outcome.ok) << (outcome.failure ? outcome.failure->message : "");
  EXPECT_THAT(gpus.misuse(), ::testing::IsEmpty());
  EXPECT_EQ(gpus.live_objects(), 0u);
}

/// Elements in device memory of the double, written and read by kernels in order on the
/// rank's compute stream.
class DeviceBuffer {
 public:
  DeviceBuffer(NcclRank& rank, DType dtype, std::int64_t count)
      : rank_(rank), dtype_(dtype), count_(count) {
    data_ = static_cast<std::byte*>(rank.hooks.allocate(
        static_cast<std::size_t>(count) * size_of(dtype) + 1, rank.hooks.current_stream()));
  }
  ~DeviceBuffer() { rank_.hooks.release(data_, rank_.hooks.current_stream()); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  Buffer buffer() const { return part(0, count_); }
  Buffer part(std::int64_t begin, std::int64_t count) const { return {at(begin), count, dtype_}; }
  const void* data() const { return data_; }

  /// Queues a kernel that writes one value.
  void set(std::int64_t i, double value) {
    rank_.gpus.launch(rank_.hooks.current_stream(),
                      [=, at = at(i), dtype = dtype_] { store_element(dtype, value, at); });
  }
  /// What a kernel queued now reads.
  std::vector<double> read() {
    std::vector<double> values;
    rank_.gpus.launch(rank_.hooks.current_stream(), [this, &values] {
      for (std::int64_t i = 0; i < count_; ++i) values.push_back(load_element(dtype_, at(i)));
    });
    rank_.gpus.synchronize(rank_.hooks.current_stream());
    return values;
  }

 private:
  std::byte* at(std::int64_t i) const {
    return data_ + static_cast<std::size_t>(i) * size_of(dtype_);
  }

  NcclRank& rank_;
  DType dtype_;
  std::int64_t count_;
  std::byte* data_ = nullptr;
};

}  // namespace shardbench::comm
