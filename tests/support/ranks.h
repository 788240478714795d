#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/job.h"

namespace shardbench::testing {

enum class RankMode {
  kThreads,
  kForked,
  kCarried,  ///< threads, each with another one that carries its calls (with_comm_thread)
};

struct RankOptions {
  RankMode mode = RankMode::kThreads;
  std::chrono::milliseconds timeout{60'000};  ///< of every wait
  bool guard_peers = false;                   ///< forked only
};

/// What a test's body gets on each rank.
struct Rank {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<comm::Job> job;
  comm::Communicator& comm;  ///< shm, this rank's
};

/// Runs `body` on every rank and returns the ranks' strings. A rank that throws, dies, stalls or
/// has a failed EXPECT or ASSERT fails the test with its message.
std::vector<std::string> collect_ranks(int world_size,
                                       const std::function<std::string(Rank&)>& body,
                                       const RankOptions& options = {});

/// The same for a body that returns nothing.
void run_ranks(int world_size, const std::function<void(Rank&)>& body,
               const RankOptions& options = {});

/// Runs `body` on every rank for tests of failures: how the job ended, nothing added to the
/// test's result.
comm::JobOutcome outcome_of(int world_size, const std::function<std::string(Rank&)>& body,
                            const RankOptions& options = {});

/// "Threads", "Forked" or "Carried", for the names of parametrised tests.
inline std::ostream& operator<<(std::ostream& out, RankMode mode) {
  return out << (mode == RankMode::kThreads  ? "Threads"
                 : mode == RankMode::kForked ? "Forked"
                                             : "Carried");
}

}  // namespace shardbench::testing
