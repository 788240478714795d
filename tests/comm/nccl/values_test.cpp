// Every collective x dtype x operation x layout x world size through the double, exact, in device
// and in host memory.
#include <gtest/gtest.h>

#include "tests/comm/nccl/harness.h"
#include "tests/comm/nccl/values.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

class NcclValues : public ::testing::TestWithParam<std::tuple<int, bool>> {};

INSTANTIATE_TEST_SUITE_P(All, NcclValues,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         [](const ::testing::TestParamInfo<NcclValues::ParamType>& param) {
                           return std::string(std::get<1>(param.param) ? "Host" : "Device") + "W" +
                                  std::to_string(std::get<0>(param.param));
                         });

TEST_P(NcclValues, AreExact) {
  const auto [world_size, on_host] = GetParam();
  NcclDouble gpus(world_size);
  gpus.set_launch_delay(world_size % 2);  // both ways in which NCCL takes a call
  run_nccl(gpus, world_size, [on_host = on_host](NcclRank& rank) {
    expect_values(rank.comm, {rank.gpus, rank.hooks}, on_host, /*averages=*/true);
  });
}

TEST(NcclCommunicator, PartsMayBeTheSameMemory) {
  NcclDouble gpus(3);
  run_nccl(gpus, 3, [](NcclRank& rank) {
    for (const ShardLayout& layout : {ShardLayout::even(6, 3), ShardLayout::even(7, 3)}) {
      DeviceBuffer full(rank, DType::kFloat32, layout.full_extent());
      const std::int64_t begin =
          layout.count(rank.rank) == 0 ? 0 : layout.segments(rank.rank)[0].full_offset;
      const Buffer own = full.part(begin, layout.count(rank.rank));
      for (std::int64_t i = 0; i < own.count; ++i) full.set(begin + i, rank.rank + 1);
      rank.comm.all_gather(layout, own, full.buffer(), {"gather", Phase::kForward}).wait();
      rank.comm
          .reduce_scatter(layout, full.buffer(), own, ReduceOp::kSum, false,
                          {"scatter", Phase::kBackward})
          .wait();
      const std::vector<double> values = full.read();
      for (int peer = 0; peer < 3; ++peer) {
        for (const Segment& s : layout.segments(peer)) {
          for (std::int64_t i = s.full_offset; i < s.full_offset + s.count; ++i) {
            ASSERT_EQ(values[static_cast<std::size_t>(i)],
                      (peer + 1) * (peer == rank.rank ? 3 : 1));
          }
        }
      }
    }
  });
}

TEST(NcclCommunicator, SymmetricMemoryIsDeviceMemory) {
  NcclDouble gpus(2);
  run_nccl(gpus, 2, [](NcclRank& rank) {
    const SymmetricMemory memory = rank.comm.symmetric_empty(40);
    bool is_device = false;
    rank.gpus.is_device_memory(is_device, memory.data());
    EXPECT_TRUE(is_device);
    EXPECT_EQ(memory.bytes(), 40u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0u);
    EXPECT_EQ(rank.comm.symmetric_empty(0).data(), nullptr);
  });
}

/// As a CPU run over NCCL has it: written and read by the host.
TEST(NcclCommunicator, SymmetricMemoryMayBeTheHosts) {
  NcclDouble gpus(2);
  const auto body = [](NcclRank& rank) {
    const SymmetricMemory memory = rank.comm.symmetric_empty(8);
    auto* const values = static_cast<float*>(memory.data());
    values[0] = static_cast<float>(rank.rank);
    values[1] = 2;
    rank.comm.all_reduce({values, 2, DType::kFloat32}, ReduceOp::kSum, {"host", Phase::kForward})
        .wait();
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1], 4);
    EXPECT_EQ(rank.gpus.uses(values), 0);
  };
  EXPECT_TRUE(outcome_of_nccl(gpus, 2, body, {}, /*on_host=*/true).ok);
  EXPECT_EQ(gpus.live_objects(), 0u);
}

TEST(NcclCommunicator, TextsComeByRank) {
  NcclDouble gpus(3);
  run_nccl(gpus, 3, [](NcclRank& rank) {
    const std::string own(static_cast<std::size_t>(rank.rank * 3), static_cast<char>(rank.rank));
    const std::vector<std::string> texts = exchange_over(rank.comm)(own);
    EXPECT_EQ(texts, (std::vector<std::string>{"", std::string(3, '\1'), std::string(6, '\2')}));
  });
}

}  // namespace
}  // namespace shardbench::comm
