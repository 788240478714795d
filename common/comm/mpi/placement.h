#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/job.h"

namespace shardbench::comm {

/// Which ranks share a machine, and the memory they share there. Without a job every rank is taken
/// to be on a machine of its own.
struct HostShare {
  std::vector<int> hosts = {};  ///< by rank, numbered in the order of their lowest ranks
  std::shared_ptr<Job> host_job = nullptr;  ///< of this host's ranks, numbered in order of rank
};

/// Ranks as a grid: every host has as many. A column is one rank of every host, all with the same
/// number there.
struct HostGrid {
  int hosts = 1;
  int per_host = 1;
  int host = 0;               ///< of this rank
  int local = 0;              ///< its number there
  bool in_order = true;       ///< each host has consecutive ranks: a sum by rank goes host by host
  std::vector<int> by_place;  ///< rank, by host, then by number there

  int rank_at(int at_host, int at_local) const {
    return by_place[static_cast<std::size_t>(at_host * per_host + at_local)];
  }
};

/// None when hosts have different numbers of ranks. `hosts` as in HostShare.
std::optional<HostGrid> make_grid(const std::vector<int>& hosts, int rank);

/// One line about ranks whose transfers cannot go host by host; empty when nothing is lost.
std::string placement_warning(const std::vector<int>& hosts);

/// How the ranks of a host take part in transfers between hosts.
enum class MpiRoute {
  kAuto,          ///< hierarchical on several hosts, from the payload on from which that is faster
  kFlat,          ///< every rank sends to every other
  kHierarchical,  ///< once per host, then through shared memory, whatever the payload
};

/// "auto", "flat", "hierarchical", as SHARDBENCH_MPI_ROUTE has it. Throws UserError for others.
MpiRoute parse_route(std::string_view text);

}  // namespace shardbench::comm
