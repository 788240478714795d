#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/bandwidth.h"
#include "bench/collectives/case.h"
#include "common/comm/job.h"
#include "common/comm/launch/ranks.h"

namespace shardbench::bench {

/// Half a row: out-of-place or in-place.
struct CollectiveTiming {
  double time_us = 0;  ///< slowest rank's mean over the iterations
  Bandwidth bandwidth;
  std::int64_t wrong = 0;      ///< elements, over all ranks and checked calls
  double wire_bytes_mean = 0;  ///< sent by one rank in one call, mean over ranks; -1: not counted
  bool wire_counted() const { return wire_bytes_mean >= 0; }
};

struct CollectiveResult {
  CollectiveCase row;
  CollectiveTiming out_of_place;
  CollectiveTiming in_place;
};

struct CollectivesReport {
  CollectivesRequest request;
  std::string backend;  ///< local, shm, mpi or nccl
  std::string host;
  std::vector<std::int64_t> pids;         ///< by rank
  std::vector<CollectiveResult> results;  ///< empty when the ranks failed
  std::optional<comm::AbortRecord> failure;
  int signal = 0;

  std::int64_t wrong() const;
  /// Over rows and both places, as nccl-tests does.
  double average_bus_gb_per_s() const;
  /// 0 done; 1 a wrong element, or a rank threw; 3 timeout or a lost rank; 128 + signal.
  int exit_code() const;
};

/// Measures every row on `ranks` and brings the results together. `on_row` is called with the
/// number of rows done. Throws UserError for requests without meaning.
CollectivesReport run_collectives(comm::Ranks& ranks, const CollectivesRequest& request,
                                  const std::function<void(std::int64_t done)>& on_row = {});

}  // namespace shardbench::bench
