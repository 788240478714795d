#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "common/comm/launch/control_text.h"
#include "common/comm/launch/environment.h"
#include "common/comm/launch/join.h"
#include "common/comm/launch/joined_ranks.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What a launcher's store does: rank 0's text for everybody.
class Board {
 public:
  std::string share(int rank, std::string_view text) {
    std::unique_lock lock(mutex_);
    if (rank == 0) {
      text_ = text;
      posted_.notify_all();
      return *text_;
    }
    posted_.wait(lock, [&] { return text_.has_value(); });
    return *text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::optional<std::string> text_;
};

JoinOptions options_of(int rank, int world_size, Board& board, milliseconds timeout) {
  return {rank, world_size, timeout, "",
          [rank, &board](std::string_view text) { return board.share(rank, text); }};
}

/// Ranks as threads, each with a group of its own; what each threw, "" if it did not.
std::vector<std::string> on_groups(int world_size, const std::function<void(Group&)>& body,
                                   milliseconds timeout = milliseconds(20'000)) {
  Board board;
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = join(options_of(rank, world_size, board, timeout));
        body(*group);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::string none_of(const std::vector<std::string>& errors) {
  std::string all;
  for (const std::string& error : errors) all += error;
  return all;
}

class Join : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Join, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(Join, TextsComeByRankAndInOrder) {
  EXPECT_EQ(
      none_of(on_groups(
          GetParam(),
          [&](Group& group) {
            EXPECT_EQ(group.world_size(), GetParam());
            EXPECT_EQ(group.hosts(), std::vector<int>(static_cast<std::size_t>(GetParam()), 0));
            EXPECT_EQ(group.host_rank(), group.rank());
            for (int round = 0; round < 3; ++round) {
              const auto texts = group.exchange(fmt::format("{}/{}", round, group.rank()));
              ASSERT_EQ(texts.size(), static_cast<std::size_t>(GetParam()));
              for (int rank = 0; rank < GetParam(); ++rank) {
                EXPECT_EQ(texts[static_cast<std::size_t>(rank)], fmt::format("{}/{}", round, rank));
              }
            }
            const std::string large(500'000, static_cast<char>('a' + group.rank()));
            EXPECT_EQ(group.exchange(large).back(),
                      std::string(500'000, static_cast<char>('a' + GetParam() - 1)));
          })),
      "");
}

TEST_P(Join, RanksOfOneHostShareMemory) {
  EXPECT_EQ(none_of(on_groups(GetParam(),
                              [&](Group& group) {
                                const auto ranks = make_shm(group.job(), group.rank());
                                for (int round = 0; round < 300;
                                     ++round) {  // more than there are slots
                                  std::int64_t value = group.rank() + 1;
                                  ranks
                                      ->all_reduce({&value, 1, DType::kInt64}, ReduceOp::kSum,
                                                   {"sum", Phase::kForward})
                                      .wait_released();
                                  ASSERT_EQ(value, GetParam() * (GetParam() + 1) / 2);
                                }
                              })),
            "");
}

TEST_P(Join, AnAbortReachesEveryRank) {
  if (GetParam() == 1) return;  // nobody to tell
  const int last = GetParam() - 1;
  const auto errors = on_groups(GetParam(), [&](Group& group) {
    if (group.rank() == last) {
      AbortRecord record;
      record.rank = last;
      record.message = "rank gave up";
      group.abort(record);
    }
    group.exchange("never complete");
    group.exchange("never complete");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank gave up");
}

TEST(JoinErrors, MissingRanksAreNamed) {
  Board board;
  std::string error;
  try {
    join(options_of(0, 3, board, milliseconds(200)));
  } catch (const UserError& caught) {
    error = caught.what();
  }
  EXPECT_EQ(error, "2 of 3 ranks did not join within 0.2 s: ranks 1, 2 missing");
}

TEST(JoinErrors, AStillRankIsNamed) {
  const auto errors = on_groups(
      2,
      [](Group& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(900));
        group.exchange("");
      },
      milliseconds(300));
  EXPECT_EQ(errors[0], "no sign of life from rank 1 for 0.3 s");
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(JoinErrors, ARankThatLeavesEarlyIsNamed) {
  for (const int leaver : {0, 1}) {
    const auto errors = on_groups(3, [&](Group& group) {
      group.exchange("");
      if (group.rank() != leaver) group.exchange("");
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(errors[static_cast<std::size_t>(rank)],
                rank == leaver ? "" : fmt::format("rank {} left the job before its end", leaver));
    }
  }
}

TEST(JoinErrors, AKilledRankIsNamed) {
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::string told(4096, '\0');
    const ssize_t length = read(to_child[0], told.data(), told.size());
    told.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    const auto group =
        join({1, 2, milliseconds(20'000), "", [&](std::string_view) { return told; }});
    group->job()->set_position(1, Phase::kBackward, "h.3");
    std::this_thread::sleep_for(milliseconds(600));  // long enough for a sign of life
    raise(SIGKILL);
  }
  std::string error;
  try {
    const auto group = join({0, 2, milliseconds(20'000), "", [&](std::string_view text) {
                               EXPECT_EQ(write(to_child[1], text.data(), text.size()),
                                         static_cast<ssize_t>(text.size()));
                               return std::string(text);
                             }});
    group->exchange("");
  } catch (const JobAborted& caught) {
    error = caught.what();
  }
  EXPECT_EQ(error,
            "rank 1 has gone without a word (killed or crashed; last seen in phase backward, unit "
            "h.3)");
  waitpid(child, nullptr, 0);
  close(to_child[0]);
  close(to_child[1]);
}

TEST(RequireEqual, NamesTheFirstDifference) {
  const auto errors = on_groups(3, [](Group& group) {
    NamedValues values{{"--lr", "0.1"}, {"--seq", "64"}};
    if (group.rank() == 2) values[1].second = "128";
    if (group.rank() == 2) values.emplace_back("--untied", "");
    require_equal(group, values);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "ranks differ in --seq: '64' on rank 0, '128' on rank 2; start all ranks with "
              "the same program and options");
  }
}

TEST(RequireEqual, NamesWhatIsNotGiven) {
  const auto errors = on_groups(2, [](Group& group) {
    require_equal(group, group.rank() == 0 ? NamedValues{{"--untied", ""}} : NamedValues{});
  });
  EXPECT_THAT(errors[1], HasSubstr("ranks differ in --untied: '' on rank 0, not given on rank 1"));
}

TEST(RequireEqual, PassesWhatIsEqual) {
  EXPECT_EQ(none_of(on_groups(3,
                              [](Group& group) {
                                require_equal(group, {{"--lr", "0.1"}});
                              })),
            "");
}

class JoinedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, JoinedRanks, ::testing::Values(1, 2, 3));

TEST_P(JoinedRanks, EveryProcessGetsEveryText) {
  EXPECT_EQ(none_of(on_groups(
                GetParam(),
                [&](Group& group) {
                  const auto ranks = joined_ranks(group, {});
                  EXPECT_EQ(ranks->launched_world_size(), GetParam());
                  EXPECT_EQ(ranks->speaks(), group.rank() == 0);
                  RanksRequest request;
                  request.world_size = GetParam();
                  EXPECT_EQ(ranks->backend_for(request), GetParam() == 1 ? "local" : "shm");
                  for (int run = 0; run < 3; ++run) {  // each with a communicator of its own
                    const JobOutcome outcome = ranks->run(request, [&](const Seat& seat) {
                      const Transport transport = seat.connect();
                      std::int64_t value = seat.rank + run;
                      transport.ranks
                          ->all_reduce({&value, 1, DType::kInt64}, ReduceOp::kMax,
                                       {"most", Phase::kForward})
                          .wait_released();
                      return fmt::format("{}: {}", seat.rank, value);
                    });
                    ASSERT_TRUE(outcome.ok);
                    ASSERT_EQ(outcome.results.size(), static_cast<std::size_t>(GetParam()));
                    for (int rank = 0; rank < GetParam(); ++rank) {
                      EXPECT_EQ(outcome.results[static_cast<std::size_t>(rank)],
                                fmt::format("{}: {}", rank, GetParam() - 1 + run));
                    }
                  }
                  const JobOutcome alone =
                      ranks->run_alone(milliseconds(1000), [&](const Seat& seat) {
                        EXPECT_EQ(group.rank(), 0);
                        EXPECT_EQ(seat.job->world_size(), 1);
                        return std::string("once");
                      });
                  EXPECT_THAT(alone.results, ElementsAre("once"));
                })),
            "");
}

TEST_P(JoinedRanks, WhatOneRankThrowsIsTheOutcomeOfAll) {
  on_groups(GetParam(), [&](Group& group) {
    const auto ranks = joined_ranks(group, {});
    RanksRequest request;
    request.world_size = GetParam();
    const auto body = [&](const Seat& seat) -> std::string {
      if (seat.rank == GetParam() - 1) throw std::runtime_error("no more data");
      return "";
    };
    for (int run = 0; run < 2; ++run) {  // the job has ended: the second one does not even start
      const JobOutcome outcome = ranks->run(request, body);
      EXPECT_FALSE(outcome.ok);
      ASSERT_TRUE(outcome.failure.has_value());
      EXPECT_EQ(outcome.failure->rank, GetParam() - 1);
      EXPECT_EQ(outcome.failure->message, "no more data");
      EXPECT_EQ(outcome.failure->reason, AbortRecord::Reason::kThrew);
    }
  });
}

TEST(JoinedRanksErrors, NamesWhatCannotBeHad) {
  on_groups(2, [](Group& group) {
    WideBackends wide;
    wide.why_no_mpi = "not started by MPI";
    wide.why_no_nccl = "no GPU";
    const auto ranks = joined_ranks(group, wide);
    const auto error_for = [&](int world_size, const std::string& backend) -> std::string {
      try {
        ranks->backend_for({world_size, milliseconds(1000), backend});
      } catch (const UserError& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(error_for(3, "auto"), "--world 3: the launcher started 2 ranks; nearest: 2");
    EXPECT_EQ(error_for(2, "mpi"), "--backend mpi: not started by MPI");
    EXPECT_EQ(error_for(2, "nccl"), "--backend nccl: no GPU");
  });
}

TEST(ControlText, ComesBackAsItWas) {
  EXPECT_THAT(unpack(pack({"", "a:b", "12:", "\n"})), ElementsAre("", "a:b", "12:", "\n"));
  EXPECT_TRUE(unpack(pack({})).empty());
  EXPECT_THROW(unpack("5:abc"), InvariantError);
  EXPECT_THROW(unpack("x:abc"), InvariantError);
  AbortRecord record;
  record.rank = 3;
  record.phase = Phase::kOptimizer;
  record.unit = "h.1";
  record.collective = "all_reduce";
  record.sequence = 17;
  record.message = "why: 5";
  record.reason = AbortRecord::Reason::kTimeout;
  const Sign sign = unpack_sign(pack_sign({9, record}));
  EXPECT_EQ(sign.beat, 9u);
  EXPECT_EQ(sign.position.rank, 3);
  EXPECT_EQ(sign.position.phase, Phase::kOptimizer);
  EXPECT_EQ(sign.position.unit, "h.1");
  EXPECT_EQ(sign.position.collective, "all_reduce");
  EXPECT_EQ(sign.position.sequence, 17);
  EXPECT_EQ(sign.position.message, "why: 5");
  EXPECT_EQ(sign.position.reason, AbortRecord::Reason::kTimeout);
}

LaunchEnvironment detect(const std::map<std::string, std::string>& variables) {
  return detect_launcher([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  });
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  try {
    detect(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(DetectLauncher, KnowsEachByItsVariables) {
  EXPECT_EQ(detect({}).launcher, Launcher::kNone);
  EXPECT_EQ(detect({{"SLURM_NTASKS", "4"}}).launcher, Launcher::kNone);
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_SIZE", "4"}}).launcher, Launcher::kMpi);
  EXPECT_EQ(detect({{"PMI_SIZE", "4"}}).launcher, Launcher::kMpi);
  EXPECT_EQ(detect({{"PMIX_RANK", "0"}}).launcher, Launcher::kMpi);
  const LaunchEnvironment found = detect({{"RANK", "1"},
                                          {"WORLD_SIZE", "4"},
                                          {"MASTER_ADDR", "node0"},
                                          {"MASTER_PORT", "29500"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"TORCHELASTIC_RUN_ID", "job7"},
                                          {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(found.launcher, Launcher::kTorchrun);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.master_address, "node0");
  EXPECT_EQ(found.master_port, 29500);
  EXPECT_TRUE(found.store_is_served);
  EXPECT_EQ(found.run, "job7/2");
}

TEST(DetectLauncher, NamesWhatIsWrong) {
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK is set but MASTER_ADDR is not"));
  EXPECT_THAT(
      error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
      HasSubstr("RANK is '2': it must be a whole number, 0 to 1"));
  EXPECT_THAT(
      error_of(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}}),
      HasSubstr("MASTER_PORT is '99999'"));
}

}  // namespace
}  // namespace shardbench::comm
