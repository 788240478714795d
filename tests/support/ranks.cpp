#include "tests/support/ranks.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/comm/comm_thread.h"
#include "common/comm/shm/shm.h"

namespace shardbench::testing {
namespace {

std::string run_body(const std::shared_ptr<comm::Job>& job, int rank,
                     const std::function<std::string(Rank&)>& body, bool carried = false) {
  auto communicator = comm::make_shm(job, rank);
  if (carried) communicator = comm::with_comm_thread(std::move(communicator));
  Rank self{rank, job->world_size(), job, *communicator};
  return body(self);
}

/// In a process of its own a failed EXPECT would stay unseen: its text is thrown instead, when the
/// body is through, so that it reaches the launcher.
std::string run_body_forked(const std::shared_ptr<comm::Job>& job, int rank,
                            const std::function<std::string(Rank&)>& body) {
  ::testing::TestPartResultArray parts;
  std::string result;
  {
    const ::testing::ScopedFakeTestPartResultReporter capture(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &parts);
    result = run_body(job, rank, body);
  }
  std::string failures;
  for (int i = 0; i < parts.size(); ++i) {
    const ::testing::TestPartResult& part = parts.GetTestPartResult(i);
    if (!part.failed()) continue;
    failures += std::string(part.file_name() == nullptr ? "?" : part.file_name()) + ":" +
                std::to_string(part.line_number()) + ": " + part.message() + "\n";
  }
  if (!failures.empty()) throw std::runtime_error(failures);
  return result;
}

}  // namespace

comm::JobOutcome outcome_of(int world_size, const std::function<std::string(Rank&)>& body,
                            const RankOptions& options) {
  comm::Job::Options job_options;
  job_options.world_size = world_size;
  job_options.timeout = options.timeout;
  job_options.guard_peers = options.guard_peers;
  const auto job = comm::Job::create(job_options);
  if (options.mode == RankMode::kForked) {
    return comm::run_forked(job, [&](int rank) { return run_body_forked(job, rank, body); });
  }
  const bool carried = options.mode == RankMode::kCarried;
  return comm::run_threads(job, [&](int rank) { return run_body(job, rank, body, carried); });
}

std::vector<std::string> collect_ranks(int world_size,
                                       const std::function<std::string(Rank&)>& body,
                                       const RankOptions& options) {
  const comm::JobOutcome outcome = outcome_of(world_size, body, options);
  if (!outcome.ok) {
    ADD_FAILURE() << "rank " << (outcome.failure ? outcome.failure->rank : -1) << " of "
                  << world_size << ": "
                  << (outcome.failure ? outcome.failure->message : "interrupted");
  }
  return outcome.results;
}

void run_ranks(int world_size, const std::function<void(Rank&)>& body, const RankOptions& options) {
  collect_ranks(
      world_size,
      [&](Rank& rank) {
        body(rank);
        return std::string();
      },
      options);
}

}  // namespace shardbench::testing
