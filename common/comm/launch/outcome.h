#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/shm/segment_job.h"

namespace shardbench::comm {

/// Brings the outcome of a job into one record; used by both launchers.
JobOutcome make_outcome(const SegmentJob& job, std::vector<std::string> results, int signal);

/// Runs one rank's function: sets the thread's rank context, turns what it throws into the abort
/// record, and marks the rank as ended. Returns whether it returned normally.
bool run_rank(SegmentJob& job, int rank, const std::function<std::string(int)>& rank_main,
              std::string& result);

/// Ends a job in which no rank has shown any progress for the job's timeout.
class StallWatch {
 public:
  explicit StallWatch(SegmentJob& job);
  /// Call every now and then. Aborts the job when it has stalled.
  void check();

 private:
  SegmentJob& job_;
  std::vector<std::uint64_t> beats_;
  std::vector<std::chrono::steady_clock::time_point> since_;
};

}  // namespace shardbench::comm
