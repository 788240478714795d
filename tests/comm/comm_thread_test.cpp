// A thread per rank that carries its calls: bytes move while the caller does something else, and
// what goes wrong is told as without it. (The conformance suite runs over it, too.)
#include "common/comm/comm_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/comm/recorder.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using testing::Rank;

testing::RankOptions carried(milliseconds timeout = milliseconds(60'000)) {
  testing::RankOptions options;
  options.mode = testing::RankMode::kCarried;
  options.timeout = timeout;
  return options;
}

Buffer floats(std::vector<float>& data) {
  return {data.data(), static_cast<std::int64_t>(data.size()), DType::kFloat32};
}

TEST(CommThread, MovesWhileTheCallerStandsInNoWait) {
  testing::run_ranks(
      3,
      [](Rank& rank) {
        std::vector<float> data(300'000, static_cast<float>(rank.rank + 1));
        Work work = rank.comm.all_reduce(floats(data), ReduceOp::kSum, {"x"});
        while (!work.done()) std::this_thread::sleep_for(milliseconds(1));
        const WorkTiming timing = work.state()->timing();
        EXPECT_TRUE(timing.blocked.empty());
        EXPECT_EQ(timing.peer_wait_ns, 0);
        EXPECT_EQ(timing.move_ns, 0);
        EXPECT_GT(timing.background.to_ns, timing.background.from_ns);
        EXPECT_EQ(timing.background.to_ns, timing.completed_ns);
        EXPECT_EQ(data.back(), 6);
        work.wait_released();
      },
      carried());
}

TEST(CommThread, SaysWhenTheCallerStoodInAWait) {
  testing::run_ranks(
      2,
      [](Rank& rank) {
        std::vector<float> data(8, 1);
        if (rank.rank == 1) std::this_thread::sleep_for(milliseconds(30));
        Work work = rank.comm.all_reduce(floats(data), ReduceOp::kSum, {"x"});
        work.wait();
        const WorkTiming timing = work.state()->timing();
        std::int64_t blocked = 0;
        for (const Span& span : timing.blocked) blocked += span.to_ns - span.from_ns;
        EXPECT_EQ(timing.peer_wait_ns, blocked);
        if (rank.rank == 0) {
          EXPECT_GE(blocked, 20'000'000);
        }
        EXPECT_EQ(data[0], 2);
      },
      carried());
}

TEST(CommThread, MoreCallsAreOpenThanThereAreSlots) {
  testing::run_ranks(
      2,
      [](Rank& rank) {
        constexpr int kCalls = 700;
        std::vector<std::vector<float>> data(kCalls, std::vector<float>(16, 1));
        std::vector<Work> works;
        for (std::vector<float>& one : data) {
          works.push_back(rank.comm.all_reduce(floats(one), ReduceOp::kSum, {"x"}));
        }
        works.back().wait();
        rank.comm.quiesce();
        for (const std::vector<float>& one : data) EXPECT_EQ(one[15], 2);
      },
      carried());
}

TEST(CommThread, AMissingRankIsNamed) {
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        std::vector<float> data(8, 1);
        if (rank.rank == 1) {
          while (!rank.job->aborted()) std::this_thread::sleep_for(milliseconds(5));
          return "";
        }
        Work work = rank.comm.all_reduce(floats(data), ReduceOp::kSum, {"late"});
        EXPECT_THROW(work.wait(steady_clock::now() + milliseconds(50)), JobAborted);
        EXPECT_THROW(rank.comm.barrier({"next"}), JobAborted);
        return "";
      },
      carried());
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->collective, "all_reduce");
  EXPECT_THAT(outcome.failure->message, HasSubstr("'late'"));
}

TEST(CommThread, HandlesOutliveTheCommunicator) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    auto comm = with_comm_thread(make_shm(job, rank));
    EXPECT_EQ(comm->backend(), "shm");
    std::vector<float> data(8, 1);
    Work done = comm->all_reduce(floats(data), ReduceOp::kSum, {"x"});
    done.wait();
    Work dropped = comm->barrier({"end"});
    comm.reset();  // issues what was asked for, and waits until every rank has finished it
    EXPECT_NO_THROW(done.wait());
    EXPECT_EQ(data[7], 2);
    try {
      dropped.wait();  // complete or not when the thread ended: no hang
    } catch (const JobAborted& error) {
      EXPECT_THAT(error.what(), HasSubstr("dropped"));
    }
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

TEST(CommThread, WrongArgumentsShowInTheCall) {
  testing::run_ranks(
      2,
      [](Rank& rank) {
        std::vector<float> data(8, 1);
        const auto layout = sharding::ShardLayout::even(100, 2);
        EXPECT_THROW(
            rank.comm.all_gather(layout, ConstBuffer{data.data(), 8, DType::kFloat32},
                                 Buffer{data.data(), 8, DType::kFloat32}, CallTag{"short"}),
            InvariantError);
        rank.comm.barrier({"end"}).wait();
      },
      carried());
}

TEST(CommThread, OneRankNeedsNone) {
  testing::run_ranks(
      1,
      [](Rank& rank) {
        std::vector<float> data(8, 1);
        rank.comm.all_reduce(floats(data), ReduceOp::kSum, {"x"}).wait();
        EXPECT_EQ(data[0], 1);
      },
      carried());
}

TEST(CoveredTime, CountsEveryInstantOnce) {
  EXPECT_EQ(covered_ns({}), 0);
  EXPECT_EQ(covered_ns({{10, 20}}), 10);
  EXPECT_EQ(covered_ns({{30, 40}, {10, 20}}), 20);
  EXPECT_EQ(covered_ns({{10, 20}, {15, 25}, {12, 14}}), 15);
  EXPECT_EQ(covered_ns({{10, 20}, {20, 30}, {5, 5}}), 20);
}

}  // namespace
}  // namespace shardbench::comm
