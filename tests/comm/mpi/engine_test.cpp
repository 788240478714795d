// The mpi backend's own logic, over an MPI that delivers between threads and fails when told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/comm/local/local.h"
#include "common/comm/mpi/options.h"
#include "common/core/error.h"
#include "tests/comm/conformance/suite.h"
#include "tests/comm/mpi/fake_mpi.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using ::testing::AllOf;
using testing::FakeMpi;
using ::testing::HasSubstr;

/// Runs `body` on every rank of `mpi`, each with a communicator of its own.
JobOutcome run_over(const FakeMpi& mpi, int world_size, const MpiOptions& options,
                    const std::function<void(Communicator&, Job&)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const auto job = Job::create({.world_size = world_size, .timeout = timeout});
  return run_threads(job, [&](int rank) -> std::string {
    FakeMpi::enter_rank(rank);
    const auto runtime = std::make_shared<MpiRuntime>(mpi.api(), world_size);
    const auto comm = make_mpi(runtime, job, options);
    body(*comm, *job);
    return "done";
  });
}

/// Everything is cut into pieces: chunks, segments, messages.
MpiOptions tiny_options() {
  return {.limits = {.largest = 96, .alone = 40}, .chunk = 48, .exchange = 64};
}

class OverFakeMpi : public ::testing::TestWithParam<std::tuple<int, bool /*synchronous*/>> {};

TEST_P(OverFakeMpi, ExactInSmallestPieces) {
  const auto [world_size, synchronous] = GetParam();
  const FakeMpi mpi(world_size, {.synchronous = synchronous});
  const JobOutcome outcome =
      run_over(mpi, world_size, tiny_options(), [](Communicator& comm, Job&) {
        const auto wire = mpi_wire_matrix(comm);
        conformance::Context context(comm, wire.get(), false);
        for (const auto* cases : {&conformance::exact_cases(), &conformance::order_cases()}) {
          for (const conformance::Case& each : *cases) {
            context.begin(each.name);
            each.run(context);
            comm.quiesce();
          }
        }
        for (const std::string& failure : context.failures()) ADD_FAILURE() << failure;
      });
  EXPECT_TRUE(outcome.ok) << outcome.failure->message;
}

INSTANTIATE_TEST_SUITE_P(All, OverFakeMpi,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5), ::testing::Bool()));

TEST(MpiEngine, ConformsOverFakeMpi) {
  const FakeMpi mpi(3, {.max_tag = 0x7fffffff});
  const JobOutcome outcome = run_over(mpi, 3, {}, [](Communicator& comm, Job&) {
    const auto wire = mpi_wire_matrix(comm);
    for (const std::string& failure : conformance::run_suite(comm, wire.get())) {
      ADD_FAILURE() << failure;
    }
  });
  EXPECT_TRUE(outcome.ok) << outcome.failure->message;
}

// Rank 1 issues its part and does something else until rank 0 has its result: only the thread in
// the background can have sent rank 1's sums.
TEST(MpiEngine, GoesOnWhileNobodyWaits) {
  const FakeMpi mpi(2, {.synchronous = true});
  std::atomic<bool> received{false};
  const JobOutcome outcome = run_over(mpi, 2, {.chunk = 256}, [&](Communicator& comm, Job& job) {
    TestBuffer data(comm, false, DType::kFloat32, 5000);
    for (std::int64_t i = 0; i < 5000; ++i) data.set(i, comm.rank() + 1);
    Work work = comm.all_reduce(data.buffer(), ReduceOp::kSum, {"sum", Phase::kBackward});
    if (comm.rank() == 0) {
      work.wait();
      received = true;
    }
    while (!received) {
      job.check_alive();
      std::this_thread::yield();
    }
    work.wait();
    for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(data.get(i), 3);
  });
  EXPECT_TRUE(outcome.ok) << outcome.failure->message;
}

// The sender of a broadcast may go far ahead; its messages must not be taken for earlier calls.
TEST(MpiEngine, RootMayRunAhead) {
  const FakeMpi mpi(2);
  constexpr int kCalls = 1000;
  const JobOutcome outcome = run_over(mpi, 2, {}, [&](Communicator& comm, Job&) {
    const ShardLayout layout = ShardLayout::contiguous({1, 0});
    std::vector<std::int64_t> values(kCalls);
    std::vector<std::int64_t> got(kCalls);
    for (int c = 0; c < kCalls; ++c) {
      const auto at = static_cast<std::size_t>(c);
      values[at] = c;
      comm.broadcast(layout, 0, {&values[at], 1, DType::kInt64}, {&got[at], 1, DType::kInt64},
                     {"ahead", Phase::kInit});
      if (comm.rank() == 1 && c == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    comm.quiesce();
    EXPECT_EQ(got, values);
  });
  EXPECT_TRUE(outcome.ok) << outcome.failure->message;
}

TEST(MpiEngine, OtherKindIsNamed) {
  const FakeMpi mpi(2);
  const JobOutcome outcome = run_over(mpi, 2, {}, [](Communicator& comm, Job&) {
    float value = 1;
    if (comm.rank() == 0) {
      comm.all_reduce({&value, 1, DType::kFloat32}, ReduceOp::kSum, {"loss", Phase::kMetrics})
          .wait();
    } else {
      comm.barrier({"end", Phase::kMetrics}).wait();
    }
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.failure->message,
              ::testing::AnyOf(HasSubstr("call #0 is all_reduce 'loss' of 1 fp32 elements on rank "
                                         "0, but barrier on rank 1"),
                               HasSubstr("call #0 is barrier 'end' of 0 uint8 elements on rank 1, "
                                         "but all_reduce on rank 0")));
}

TEST(MpiEngine, OtherSizeIsNamed) {
  const FakeMpi mpi(2, {.max_tag = 0x7fffffff});
  const JobOutcome outcome = run_over(mpi, 2, {}, [](Communicator& comm, Job&) {
    float values[2] = {1, 1};
    comm.all_reduce({values, comm.rank() + 1, DType::kFloat32}, ReduceOp::kSum,
                    {"loss", Phase::kMetrics})
        .wait();
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("order differs: call #0 is all_reduce 'loss'"),
                    HasSubstr("all_reduce with another label, size, type")));
}

TEST(MpiEngine, TimeoutNamesWhoIsMissing) {
  const FakeMpi mpi(4);
  const JobOutcome outcome = run_over(
      mpi, 4, {},
      [](Communicator& comm, Job& job) {
        comm.barrier({"first", Phase::kInit}).wait();
        if (comm.rank() == 1 || comm.rank() == 2) {
          while (!job.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          job.check_alive();
        }
        comm.barrier({"late", Phase::kForward}).wait();
      },
      std::chrono::milliseconds(300));
  ASSERT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("barrier #1 'late' (phase forward): rank "), HasSubstr("waited 3"),
                    HasSubstr("for rank 1 ("), HasSubstr("also missing: rank 2")));
  EXPECT_EQ(outcome.failure->reason, AbortRecord::Reason::kTimeout);
}

TEST(MpiEngine, ErrorOfTheLibraryEndsTheJob) {
  const FakeMpi mpi(2, {.failing_send = 5});
  const JobOutcome outcome = run_over(mpi, 2, {}, [](Communicator& comm, Job&) {
    for (int i = 0; i < 10; ++i) comm.barrier({"meet", Phase::kInit}).wait();
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.failure->message, HasSubstr("fake, sending: the network is down"));
  EXPECT_EQ(outcome.failure->collective, "barrier");
  EXPECT_EQ(mpi.finalized(), 0) << "peers may be gone: MPI_Finalize would hang";
}

TEST(MpiEngine, AbortReachesWaits) {
  const FakeMpi mpi(2);
  const JobOutcome outcome = run_over(mpi, 2, {}, [](Communicator& comm, Job&) {
    if (comm.rank() == 1) comm.abort("enough");
    comm.barrier({"never", Phase::kInit}).wait();
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->message, "enough");
  EXPECT_EQ(outcome.failure->rank, 1);
}

TEST(MpiEngine, WireMatrixIsThatOfMpi) {
  const auto local = make_local();
  EXPECT_THROW(mpi_wire_matrix(*local), InvariantError);
}

}  // namespace
}  // namespace shardbench::comm
