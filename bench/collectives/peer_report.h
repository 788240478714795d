#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/run.h"
#include "bench/compare/table.h"

namespace shardbench::bench {

/// One row of another library.
struct CollectivePeerTiming {
  double time_us = 0;      ///< slowest rank's mean over the iterations, mean over the rounds
  std::int64_t wrong = 0;  ///< elements of all ranks
};

/// Another library's collectives on the rows of a report.
struct CollectivePeer {
  std::string name;                           ///< as --peers takes it: "gloo", "mpi"
  std::string title;                          ///< "Gloo (torch 2.15.0)"
  std::vector<CollectivePeerTiming> timings;  ///< by row; empty when it failed
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
};

/// Ours beside others', taken in turns.
struct PeersReport {
  CollectivesReport ours;
  std::vector<CollectivePeer> peers;
  int rounds = 1;

  int exit_code() const;
};

/// "gloo", "mpi".
const std::vector<std::string>& collective_peer_names();
/// Throws UserError naming what peers do not have: dtypes but fp32, operations but sum, roots but
/// 0.
void refuse_unknown_to_peers(const CollectivesRequest& request);

/// Which of our two timings peers are set against: they work in place in all_reduce, broadcast and
/// reduce, and out of place in all_gather and reduce_scatter.
const CollectiveTiming& timing_beside_peers(const CollectiveResult& result);

/// The mean of what the same rows took in several rounds; the first failure, if there is one.
CollectivesReport mean_of(const std::vector<CollectivesReport>& rounds);

/// Bus bandwidths side by side, and ours over each peer's.
Table peers_table(const PeersReport& report);
/// The table under lines that say what was done.
std::string peers_text(const PeersReport& report);
/// collectives_json of ours with "peers".
nlohmann::ordered_json peers_json(const PeersReport& report);

}  // namespace shardbench::bench
