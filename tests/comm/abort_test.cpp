// Ranks that throw, die, stall, leave early or are told to stop: everybody ends, and the record
// says who, where and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;
using testing::RankMode;
using testing::RankOptions;
using Reason = AbortRecord::Reason;

std::string all_reduce_for_ever(Rank& rank) {
  TestBuffer data(rank.comm, true, DType::kFloat32, 64);
  for (int i = 0; i < 64; ++i) data.set(i, 0);
  for (;;) {
    rank.comm.all_reduce(data.buffer(), ReduceOp::kMax, {"loop", Phase::kBackward}).wait();
  }
}

class Abort : public ::testing::TestWithParam<RankMode> {
 protected:
  RankOptions options(milliseconds timeout = seconds(30)) const {
    RankOptions result;
    result.mode = GetParam();
    result.timeout = timeout;
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Abort,
                         ::testing::Values(RankMode::kThreads, RankMode::kForked,
                                           RankMode::kCarried));

TEST_P(Abort, RankThatThrows) {
  const JobOutcome outcome = testing::outcome_of(
      4,
      [](Rank& rank) -> std::string {
        rank.job->set_position(rank.rank, Phase::kBackward, "h.3");
        rank.comm.barrier({"start", Phase::kInit}).wait();
        if (rank.rank == 2) throw std::runtime_error("the loss is not finite");
        return all_reduce_for_ever(rank);
      },
      options());
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 2);
  EXPECT_EQ(outcome.failure->reason, Reason::kThrew);
  EXPECT_EQ(outcome.failure->phase, Phase::kBackward);
  EXPECT_EQ(outcome.failure->unit, "h.3");
  EXPECT_EQ(outcome.failure->message, "the loss is not finite");
}

TEST_P(Abort, Requested) {
  const JobOutcome outcome = testing::outcome_of(
      3,
      [](Rank& rank) -> std::string {
        if (rank.rank != 1) return all_reduce_for_ever(rank);
        rank.comm.abort("enough");
        EXPECT_THROW(rank.comm.barrier({"late", Phase::kInit}).wait(), JobAborted);
        return "asked";
      },
      options());
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->reason, Reason::kRequested);
  EXPECT_EQ(outcome.failure->message, "enough");
  EXPECT_EQ(outcome.results[1], "asked");
  EXPECT_EQ(outcome.results[0], "");
}

TEST_P(Abort, TimeoutNamesTheStalledRank) {
  const JobOutcome outcome = testing::outcome_of(
      3,
      [](Rank& rank) -> std::string {
        rank.comm.barrier({"start", Phase::kInit}).wait();
        rank.job->set_position(rank.rank, rank.rank == 1 ? Phase::kForward : Phase::kBackward,
                               rank.rank == 1 ? "h.7" : "h.2");
        if (rank.rank == 1) {
          // Busy elsewhere until the others have given up.
          while (!rank.job->aborted()) std::this_thread::sleep_for(milliseconds(5));
          return "stalled";
        }
        return all_reduce_for_ever(rank);
      },
      options(milliseconds(400)));
  ASSERT_FALSE(outcome.ok);
  const AbortRecord& failure = *outcome.failure;
  EXPECT_EQ(failure.reason, Reason::kTimeout);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.phase, Phase::kForward);
  EXPECT_EQ(failure.unit, "h.7");
  EXPECT_EQ(failure.collective, "all_reduce");
  EXPECT_EQ(failure.sequence, 1);
  EXPECT_THAT(failure.message, AllOf(HasSubstr("all_reduce #1 'loop'"), HasSubstr("rank 1"),
                                     HasSubstr("phase forward"), HasSubstr("'h.7'"),
                                     HasSubstr("outside any collective")));
}

TEST_P(Abort, DeadlineOfOneWait) {
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        if (rank.rank == 1) {
          while (!rank.job->aborted()) std::this_thread::sleep_for(milliseconds(5));
          return "";
        }
        rank.comm.barrier({"soon", Phase::kInit})
            .wait(std::chrono::steady_clock::now() + milliseconds(50));
        return "";
      },
      options());
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
}

// A rank that returns too early cannot come any more: no need to wait for the timeout.
TEST_P(Abort, RankThatLeavesEarly) {
  const JobOutcome outcome = testing::outcome_of(
      3,
      [](Rank& rank) -> std::string {
        if (rank.rank == 0) return "left";
        rank.comm.barrier({"all of us", Phase::kMetrics}).wait();
        return "";
      },
      options(seconds(3600)));
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 0);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("rank 0 ended"), HasSubstr("barrier #0 'all of us'")));
  EXPECT_EQ(outcome.results[0], "left");
}

// Of memory that peers do not reach, a root hands over chunk by chunk: it needs its readers.
TEST_P(Abort, ReaderOfARootsChunksThatLeavesEarly) {
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        if (rank.rank == 1) return "left";
        constexpr std::int64_t kCount = 4 << 20;
        std::vector<float> values(static_cast<std::size_t>(kCount), 1);
        const Buffer buffer{values.data(), kCount, DType::kFloat32};
        const auto layout = sharding::ShardLayout::contiguous({kCount, 0});
        rank.comm.broadcast(layout, 0, buffer, buffer, {"weights", Phase::kForward}).wait();
        return "";
      },
      options(seconds(3600)));
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("rank 1 ended"), HasSubstr("broadcast #0 'weights'")));
}

// It has issued the call, and then does not come back for the chunks.
TEST_P(Abort, TimeoutNamesWhoStopsReadingChunks) {
  if (GetParam() == RankMode::kCarried) GTEST_SKIP() << "its thread reads on";
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        constexpr std::int64_t kCount = 4 << 20;
        std::vector<float> values(static_cast<std::size_t>(kCount), 1);
        Work work = rank.comm.all_reduce({values.data(), kCount, DType::kFloat32}, ReduceOp::kSum,
                                         {"bucket", Phase::kBackward});
        while (rank.rank == 1 && !rank.job->aborted()) {
          std::this_thread::sleep_for(milliseconds(5));
        }
        work.wait();
        return "";
      },
      options(milliseconds(400)));
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_THAT(outcome.failure->message, HasSubstr("all_reduce #0 'bucket'"));
}

TEST_P(Abort, StallOutsideAnyCollective) {
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        rank.job->set_position(rank.rank, Phase::kOptimizer, "root");
        while (!rank.job->aborted()) std::this_thread::sleep_for(milliseconds(5));
        return "";
      },
      options(milliseconds(300)));
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  EXPECT_EQ(outcome.failure->phase, Phase::kOptimizer);
  EXPECT_EQ(outcome.failure->unit, "root");
  EXPECT_THAT(outcome.failure->message, HasSubstr("no rank has made progress"));
}

RankOptions forked(milliseconds timeout = seconds(60)) {
  RankOptions options;
  options.mode = RankMode::kForked;
  options.timeout = timeout;
  return options;
}

TEST(LostRank, KilledInsideACollective) {
  const JobOutcome outcome = testing::outcome_of(
      4,
      [](Rank& rank) -> std::string {
        rank.job->set_position(rank.rank, Phase::kBackward, "h.5");
        rank.comm.barrier({"start", Phase::kInit}).wait();
        if (rank.rank == 3) {
          // Dies while it waits in a call that the others do not issue.
          std::thread([] {
            std::this_thread::sleep_for(milliseconds(100));
            raise(SIGKILL);
          }).detach();
          rank.comm.barrier({"trap", Phase::kBackward}).wait();
        }
        while (!rank.job->aborted()) std::this_thread::sleep_for(milliseconds(5));
        rank.comm.barrier({"never", Phase::kBackward}).wait();
        return "";
      },
      forked());
  ASSERT_FALSE(outcome.ok);
  const AbortRecord& failure = *outcome.failure;
  EXPECT_EQ(failure.reason, Reason::kLost);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.phase, Phase::kBackward);
  EXPECT_EQ(failure.unit, "h.5");
  EXPECT_EQ(failure.collective, "barrier");
  EXPECT_EQ(failure.sequence, 1);
  EXPECT_THAT(failure.message,
              AllOf(HasSubstr("rank 3"), HasSubstr("signal 9"), HasSubstr("phase backward"),
                    HasSubstr("'h.5'"), HasSubstr("barrier #1")));
}

TEST(LostRank, ExitsCrashesOrFaults) {
  const std::pair<std::function<void()>, const char*> kinds[] = {
      {[] { _exit(7); }, "exited with code 7"},
      {[] { _exit(0); }, "exited with code 0"},
      {[] {
         signal(SIGABRT, SIG_DFL);
         std::abort();
       },
       "signal 6"},
      {[] {
         signal(SIGSEGV, SIG_DFL);
         raise(SIGSEGV);
       },
       "signal 11"}};
  for (const auto& [die, text] : kinds) {
    const JobOutcome outcome = testing::outcome_of(
        2,
        [die_now = die](Rank& rank) -> std::string {
          rank.comm.barrier({"start", Phase::kInit}).wait();
          if (rank.rank == 0) die_now();
          return all_reduce_for_ever(rank);
        },
        forked());
    ASSERT_FALSE(outcome.ok) << text;
    EXPECT_EQ(outcome.failure->reason, Reason::kLost) << text;
    EXPECT_EQ(outcome.failure->rank, 0) << text;
    EXPECT_THAT(outcome.failure->message, HasSubstr(text));
  }
}

// A stopped process neither ends nor comes: it is named, and killed.
TEST(LostRank, Stopped) {
  const JobOutcome outcome = testing::outcome_of(
      3,
      [](Rank& rank) -> std::string {
        rank.job->set_position(rank.rank, Phase::kForward, "h.1");
        if (rank.rank == 1) raise(SIGSTOP);
        return all_reduce_for_ever(rank);
      },
      forked(milliseconds(500)));
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->reason, Reason::kTimeout);
  EXPECT_EQ(outcome.failure->unit, "h.1");
}

TEST(Forked, BringsResultsBack) {
  const std::vector<std::string> results = testing::collect_ranks(
      3, [](Rank& rank) { return std::string(static_cast<std::size_t>(rank.rank) << 20, 'x'); },
      forked());
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(results[r].size(), r << 20);
}

// A failed expectation in another process is one of the test: it ends up in the outcome.
TEST(Forked, FailedExpectationIsSeen) {
  const JobOutcome outcome = testing::outcome_of(
      2,
      [](Rank& rank) -> std::string {
        EXPECT_EQ(rank.rank, 0) << "not the first rank";
        return "";
      },
      forked());
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_THAT(outcome.failure->message,
              AllOf(HasSubstr("abort_test.cpp"), HasSubstr("not the first rank")));
}

/// Pids of ranks, in memory that a grandchild and the test share.
struct SharedPids {
  pid_t* pids = static_cast<pid_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ~SharedPids() { munmap(pids, 4096); }
};

/// Whether the process is gone, or only a zombie of some other parent, within a few seconds.
bool is_gone(pid_t pid) {
  for (int i = 0; i < 1000; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

/// Forks a launcher of two ranks that never end; returns its pid once both have started.
pid_t start_launcher(const SharedPids& shared) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    const JobOutcome outcome = testing::outcome_of(
        2,
        [&](Rank& rank) -> std::string {
          rank.comm.barrier({"start", Phase::kInit}).wait();
          reinterpret_cast<std::atomic<pid_t>*>(shared.pids)[rank.rank].store(getpid());
          return all_reduce_for_ever(rank);
        },
        forked());
    _exit(outcome.signal == SIGTERM && !outcome.ok ? 42 : 1);
  }
  auto* pids = reinterpret_cast<std::atomic<pid_t>*>(shared.pids);
  while (pids[0].load() == 0 || pids[1].load() == 0) std::this_thread::sleep_for(milliseconds(1));
  return launcher;
}

TEST(Signals, TerminatedLauncherLeavesNoChild) {
  const SharedPids shared;
  const pid_t launcher = start_launcher(shared);
  kill(launcher, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);  // the signal came back in the outcome
  EXPECT_TRUE(is_gone(shared.pids[0]));
  EXPECT_TRUE(is_gone(shared.pids[1]));
}

TEST(Signals, KilledLauncherLeavesNoChild) {
  const SharedPids shared;
  const pid_t launcher = start_launcher(shared);
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  EXPECT_TRUE(is_gone(shared.pids[0]));
  EXPECT_TRUE(is_gone(shared.pids[1]));
}

TEST(Signals, HandlersAreAsBefore) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  struct sigaction previous {};
  sigaction(SIGTERM, &action, &previous);
  testing::run_ranks(
      2, [](Rank&) {}, forked());
  struct sigaction after {};
  sigaction(SIGTERM, &previous, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) EXPECT_EQ(sigismember(&mask, number), 0);
}

}  // namespace
}  // namespace shardbench::comm
