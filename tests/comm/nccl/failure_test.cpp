// Errors of NCCL and CUDA, ranks that do not come, and what is refused: everybody ends, and the
// record says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "common/core/error.h"
#include "tests/comm/nccl/harness.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Reason = AbortRecord::Reason;

constexpr CallTag kTag{"h.3", Phase::kBackward};
const testing::RankOptions kShort{.timeout = milliseconds(300)};

/// Issues one all_reduce and reads its result as a GPU run would: blocked by its own stream.
void reduce_and_read(NcclRank& rank) {
  DeviceBuffer data(rank, DType::kFloat32, 1);
  data.set(0, 1);
  rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag).wait();
  rank.gpus.synchronize(rank.hooks.current_stream());
  rank.job->check_alive();
}

TEST(NcclFailure, ARankThatNeverJoinsIsATimeout) {
  NcclDouble gpus(2);
  const auto start = [&](testing::Rank& shm) {
    DoubleHooks hooks(gpus);
    const ExchangeTexts exchange = exchange_over(shm.comm);
    if (shm.rank == 1) {
      exchange("");
      shm.comm.barrier({"end", Phase::kInit}).wait();
    }
    make_nccl(shm.job, shm.rank, {&gpus, &gpus, &hooks, shm.rank, exchange, false});
    return std::string();
  };
  const JobOutcome outcome = testing::outcome_of(2, start, kShort);
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  if (outcome.failure->collective != "barrier") {  // the peer's own wait may be first to give up
    EXPECT_THAT(outcome.failure->message,
                AllOf(HasSubstr("setting up NCCL: rank 0 waited"), HasSubstr("rank 1 (")));
  }
  EXPECT_THAT(gpus.misuse(), IsEmpty());
}

TEST(NcclFailure, ACallThatHangsIsATimeoutWithItsName) {
  NcclDouble gpus(2);
  gpus.hang();
  const JobOutcome outcome = outcome_of_nccl(gpus, 2, reduce_and_read, kShort);
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  EXPECT_EQ(outcome.failure->collective, "all_reduce");
  EXPECT_EQ(outcome.failure->sequence, 0);
  EXPECT_EQ(outcome.failure->unit, "h.3");
  EXPECT_EQ(outcome.failure->phase, Phase::kBackward);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("all_reduce #0 'h.3' (phase backward): rank "), HasSubstr(" waited "),
                    HasSubstr("(phase ")));
  EXPECT_THAT(gpus.misuse(), IsEmpty());
  EXPECT_EQ(gpus.live_objects(), 0u);
}

TEST(NcclFailure, ADeadlineOfAWaitOnTheHostHolds) {
  NcclDouble gpus(2);
  const JobOutcome outcome = outcome_of_nccl(gpus, 2, [](NcclRank& rank) {
    if (rank.rank == 1) {
      for (;;) {
        rank.job->check_alive();
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    rank.comm.barrier({"meeting", Phase::kMetrics})
        .wait(std::chrono::steady_clock::now() + milliseconds(50));
  });
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_THAT(outcome.failure->message, HasSubstr("barrier #0 'meeting' (phase metrics): rank 0"));
}

TEST(NcclFailure, AnErrorOfNcclInTheBackgroundEndsTheJob) {
  NcclDouble gpus(2);
  const JobOutcome outcome = outcome_of_nccl(gpus, 2, [](NcclRank& rank) {
    if (rank.rank == 1) {
      rank.gpus.hang();
      rank.gpus.set_async_error(0, NcclCode::kRemoteError);
    }
    reduce_and_read(rank);
  });
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, Reason::kLost);
  EXPECT_THAT(outcome.failure->message, HasSubstr("NCCL of rank 0 reports nccl error 6"));
}

TEST(NcclFailure, AnErrorOfACallNamesIt) {
  for (const char* call : {"all_gather", "group_start", "broadcast", "group_end"}) {
    const bool even = std::string(call) == "all_gather";
    NcclDouble gpus(2);
    const JobOutcome outcome = outcome_of_nccl(gpus, 2, [&](NcclRank& rank) {
      rank.comm.barrier({"start", Phase::kInit}).wait();
      if (rank.rank == 0) rank.gpus.fail(call, 0, NcclCode::kSystemError);
      rank.comm.barrier({"planted", Phase::kInit}).wait();
      const ShardLayout layout = ShardLayout::even(even ? 4 : 3, 2);
      DeviceBuffer shard(rank, DType::kFloat32, 2);
      DeviceBuffer full(rank, DType::kFloat32, 4);
      rank.comm.all_gather(layout, shard.buffer(), full.buffer(), kTag).wait();
      rank.gpus.synchronize(rank.hooks.current_stream());
      rank.job->check_alive();
    });
    ASSERT_TRUE(outcome.failure) << call;
    EXPECT_THAT(outcome.failure->message,
                AllOf(HasSubstr("all_gather #2 'h.3' (phase backward): NCCL of rank "),
                      HasSubstr(" reports nccl error 2")));
    EXPECT_THAT(gpus.misuse(), IsEmpty());
    EXPECT_EQ(gpus.live_objects(), 0u);
  }
}

TEST(NcclFailure, AnErrorOfCudaNamesTheCall) {
  NcclDouble gpus(1);
  const JobOutcome outcome = outcome_of_nccl(gpus, 1, [](NcclRank& rank) {
    rank.gpus.fail_cuda("event_record", 0, CudaCode{2});
    reduce_and_read(rank);
  });
  ASSERT_TRUE(outcome.failure);
  EXPECT_THAT(outcome.failure->message, HasSubstr("cudaEventRecord: cuda error 2"));
}

TEST(NcclFailure, AbortReachesARankThatItsOwnStreamBlocks) {
  NcclDouble gpus(2);
  const JobOutcome outcome = outcome_of_nccl(gpus, 2, [](NcclRank& rank) {
    if (rank.rank == 0) return reduce_and_read(rank);
    while (rank.gpus.calls(0).empty()) std::this_thread::yield();
    rank.comm.abort("the loss is not finite");
  });
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->reason, Reason::kRequested);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->message, "the loss is not finite");
  EXPECT_THAT(gpus.misuse(), IsEmpty());
  EXPECT_EQ(gpus.live_objects(), 0u);
}

TEST(NcclFailure, CallsAfterTheEndThrow) {
  NcclDouble gpus(1);
  outcome_of_nccl(gpus, 1, [](NcclRank& rank) {
    DeviceBuffer data(rank, DType::kFloat32, 1);
    Work work = rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
    rank.comm.abort("enough");
    EXPECT_THROW(work.wait(), JobAborted);
    EXPECT_THROW(work.done(), JobAborted);
    EXPECT_THROW(rank.comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag), JobAborted);
    EXPECT_THROW(rank.comm.quiesce(), JobAborted);
  });
  EXPECT_THAT(gpus.misuse(), IsEmpty());
}

TEST(NcclFailure, WhatIsNotDefinedIsRefused) {
  NcclDouble gpus(1);
  run_nccl(gpus, 1, [](NcclRank& rank) {
    DeviceBuffer whole(rank, DType::kInt64, 2);
    DeviceBuffer bytes(rank, DType::kUInt8, 2);
    EXPECT_THROW(rank.comm.all_reduce(whole.buffer(), ReduceOp::kAverage, kTag), UserError);
    EXPECT_THROW(rank.comm.all_reduce(bytes.buffer(), ReduceOp::kSum, kTag), UserError);
    EXPECT_THROW(
        rank.comm.all_gather(ShardLayout::even(4, 2), whole.buffer(), whole.buffer(), kTag),
        InvariantError)
        << "a layout of another world size";
    EXPECT_THAT(rank.gpus.calls(0), IsEmpty());
  });
}

TEST(NcclFailure, PlainHooksRefuseToAccumulate) {
  NcclDouble gpus(1);
  const auto hooks = plain_hooks(gpus);
  EXPECT_THROW(hooks->add_into(nullptr, nullptr, 0, DType::kFloat32, nullptr), UserError);
  void* const data = hooks->allocate(8, hooks->current_stream());
  bool is_device = false;
  gpus.is_device_memory(is_device, data);
  EXPECT_TRUE(is_device);
  hooks->release(data, hooks->current_stream());
  EXPECT_EQ(gpus.live_objects(), 0u);
}

/// The message of the UserError that choosing a device throws.
std::string refusal(int devices, int host_rank, int host_ranks) {
  NcclDouble gpus(devices);
  try {
    choose_device(gpus, host_rank, host_ranks);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ChooseDevice, RanksTakeDevicesInOrder) {
  NcclDouble gpus(4);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(choose_device(gpus, rank, 4), rank);
  EXPECT_EQ(choose_device(gpus, 1, 2), 1);
}

TEST(ChooseDevice, TooFewAreNamedWithTheWayOut) {
  unsetenv("NCCL_HOSTID");
  EXPECT_THAT(refusal(0, 0, 1), HasSubstr("no CUDA device (cuda error 100)"));
  EXPECT_THAT(refusal(1, 0, 2), HasSubstr("1 CUDA device for 2 ranks on this host"));
  EXPECT_THAT(refusal(2, 0, 4), AllOf(HasSubstr("2 CUDA devices for 4 ranks on this host"),
                                      HasSubstr("start at most 2"), HasSubstr("NCCL_HOSTID")));
}

TEST(ChooseDevice, RanksShareThemWhereTheyActAsHosts) {
  NcclDouble gpus(2);
  setenv("NCCL_HOSTID", "rank3", 1);
  EXPECT_EQ(choose_device(gpus, 3, 4), 1);
  unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace shardbench::comm
