// The double itself: it must show what the tests of the backend rely on it to show.
#include "tests/comm/nccl/double.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace shardbench::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Two streams and an event of one device.
class NcclDoubleTest : public ::testing::Test {
 protected:
  NcclDoubleTest() : gpus_(2) {
    gpus_.stream_create(first_);
    gpus_.stream_create(second_);
    gpus_.event_create(event_, false);
  }
  std::byte* allocate(std::size_t bytes) {
    void* data = nullptr;
    gpus_.malloc_async(data, bytes, first_);
    return static_cast<std::byte*>(data);
  }
  /// A communicator of one rank.
  NcclHandle solo() {
    std::string id;
    NcclHandle comm = nullptr;
    gpus_.unique_id(id);
    gpus_.init_rank(comm, 1, id, 0);
    return comm;
  }

  NcclDouble gpus_;
  GpuStream first_ = nullptr;
  GpuStream second_ = nullptr;
  GpuEvent event_ = nullptr;
};

TEST_F(NcclDoubleTest, NothingRunsBeforeSomebodyAsks) {
  int value = 0;
  gpus_.launch(first_, [&] { value = 1; });
  gpus_.event_record(event_, first_);
  gpus_.launch(first_, [&] { value = 2; });
  EXPECT_EQ(value, 0);
  EXPECT_EQ(gpus_.event_query(event_), CudaCode::kSuccess);
  EXPECT_EQ(value, 1) << "only what the event marks";
  gpus_.synchronize(first_);
  EXPECT_EQ(value, 2);
}

TEST_F(NcclDoubleTest, AStreamThatDoesNotWaitReadsOldValues) {
  for (const bool waits : {false, true}) {
    int value = 0;
    int seen = -1;
    gpus_.launch(first_, [&] { value = 1; });
    gpus_.event_record(event_, first_);
    if (waits) gpus_.stream_wait_event(second_, event_);
    gpus_.launch(second_, [&] { seen = value; });
    gpus_.synchronize(second_);
    EXPECT_EQ(seen, waits ? 1 : 0);
    gpus_.synchronize(first_);
  }
}

TEST_F(NcclDoubleTest, AWaitIsForWhatTheEventMarksWhenItIsQueued) {
  int value = 0;
  gpus_.launch(first_, [&] { value = 1; });
  gpus_.event_record(event_, first_);
  gpus_.stream_wait_event(second_, event_);
  gpus_.launch(first_, [&] { value = 2; });
  gpus_.event_record(event_, first_);
  gpus_.synchronize(second_);
  EXPECT_EQ(value, 1);
}

TEST_F(NcclDoubleTest, AnotherThreadsQueryRunsNothing) {
  int value = 0;
  gpus_.launch(first_, [&] { value = 1; });
  gpus_.event_record(event_, first_);
  std::thread([&] { EXPECT_EQ(gpus_.event_query(event_), CudaCode::kNotReady); }).join();
  EXPECT_EQ(value, 0);
}

TEST_F(NcclDoubleTest, MemoryThatIsFreedIsPoisonedInStreamOrder) {
  std::byte* const data = allocate(4);
  std::byte* const other = allocate(4);
  gpus_.memset_async(data, 7, 4, first_);
  gpus_.free_async(data, first_);
  gpus_.memcpy_async(other, data, 4, second_);
  gpus_.synchronize(first_);
  gpus_.synchronize(second_);
  EXPECT_THAT(gpus_.misuse(), ElementsAre("memcpy_async uses memory that has been freed"));
  EXPECT_EQ(other[0], std::byte{0xdb});
}

TEST_F(NcclDoubleTest, FreshMemoryIsNoNumber) {
  float value = 0;
  std::memcpy(&value, allocate(4), 4);
  EXPECT_NE(value, value);
}

TEST_F(NcclDoubleTest, CollectivesNeedDeviceMemoryThatIsLargeEnough) {
  const NcclHandle comm = solo();
  float host = 0;
  std::byte* const data = allocate(4);
  gpus_.all_reduce(data, &host, 1, DType::kFloat32, NcclApi::Op::kSum, comm, first_);
  gpus_.all_reduce(data, data, 2, DType::kFloat32, NcclApi::Op::kSum, comm, first_);
  gpus_.synchronize(first_);
  EXPECT_THAT(gpus_.misuse(), ElementsAre("all_reduce 1 fp32 sum was given memory of the host",
                                          "all_reduce 2 fp32 sum goes past the end of its block",
                                          "all_reduce 2 fp32 sum goes past the end of its block"));
}

TEST_F(NcclDoubleTest, CallsOutOfOrderAreNoted) {
  const NcclHandle comm = solo();
  std::byte* const data = allocate(4);
  gpus_.group_end();
  gpus_.group_start();
  gpus_.group_start();
  gpus_.group_end();
  gpus_.destroy(comm);
  gpus_.all_reduce(data, data, 1, DType::kFloat32, NcclApi::Op::kSum, comm, first_);
  EXPECT_THAT(gpus_.misuse(),
              ElementsAre("group_end without group_start", "group_start inside a group",
                          "destroy before finalize", "all_reduce of a communicator that is gone"));
}

TEST_F(NcclDoubleTest, RanksThatDoNotMatchAreNoted) {
  std::string id;
  gpus_.unique_id(id);
  NcclHandle comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) gpus_.init_rank(comms[rank], 2, id, rank);
  std::byte* const data = allocate(16);
  gpus_.broadcast(data, data, 3, DType::kFloat32, 0, comms[0], first_);
  gpus_.broadcast(data, data, 2, DType::kFloat32, 0, comms[1], second_);
  gpus_.synchronize(first_);
  EXPECT_THAT(gpus_.misuse(), ElementsAre("ranks called different collectives: broadcast 3 fp32 "
                                          "root 0 against broadcast 2 fp32 root 0"));
}

TEST_F(NcclDoubleTest, ACallIsOnItsStreamOnlyWhenNcclSaysSo) {
  const NcclHandle comm = solo();
  std::byte* const data = allocate(8);
  gpus_.memset_async(data, 0, 8, first_);
  gpus_.set_launch_delay(2);
  EXPECT_EQ(gpus_.all_reduce(data, data, 1, DType::kInt64, NcclApi::Op::kSum, comm, first_),
            NcclCode::kInProgress);
  NcclCode state = NcclCode::kSuccess;
  for (int look = 0; look < 3; ++look) {
    gpus_.async_error(comm, state);
    EXPECT_EQ(state, look < 2 ? NcclCode::kInProgress : NcclCode::kSuccess);
  }
  EXPECT_THAT(gpus_.misuse(), IsEmpty());
  gpus_.all_reduce(data, data, 1, DType::kInt64, NcclApi::Op::kSum, comm, first_);
  gpus_.all_reduce(data, data, 1, DType::kInt64, NcclApi::Op::kSum, comm, first_);
  EXPECT_THAT(gpus_.misuse(), ElementsAre("all_reduce while the call before is still on its way"));
}

}  // namespace
}  // namespace shardbench::comm
