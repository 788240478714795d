#include "common/comm/mpi/placement.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::comm {
namespace {

/// Ranks by host.
std::vector<std::vector<int>> ranks_of(const std::vector<int>& hosts) {
  std::vector<std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto host = static_cast<std::size_t>(hosts[rank]);
    if (ranks.size() <= host) ranks.resize(host + 1);
    ranks[host].push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool all_equal(const std::vector<std::vector<int>>& ranks) {
  return std::ranges::all_of(
      ranks, [&](const auto& of_host) { return of_host.size() == ranks.front().size(); });
}

bool is_in_order(const std::vector<int>& hosts) { return std::ranges::is_sorted(hosts); }

}  // namespace

std::optional<HostGrid> make_grid(const std::vector<int>& hosts, int rank) {
  const std::vector<std::vector<int>> ranks = ranks_of(hosts);
  if (ranks.empty() || !all_equal(ranks)) return std::nullopt;
  HostGrid grid;
  grid.hosts = static_cast<int>(ranks.size());
  grid.per_host = static_cast<int>(ranks.front().size());
  grid.host = hosts.at(static_cast<std::size_t>(rank));
  grid.in_order = is_in_order(hosts);
  for (const std::vector<int>& of_host : ranks) {
    grid.by_place.insert(grid.by_place.end(), of_host.begin(), of_host.end());
  }
  const std::vector<int>& own = ranks[static_cast<std::size_t>(grid.host)];
  grid.local = static_cast<int>(std::ranges::find(own, rank) - own.begin());
  return grid;
}

std::string placement_warning(const std::vector<int>& hosts) {
  const std::vector<std::vector<int>> ranks = ranks_of(hosts);
  if (ranks.size() == hosts.size() || ranks.size() < 2) return {};
  if (!all_equal(ranks)) {
    std::vector<std::size_t> counts;
    for (const std::vector<int>& of_host : ranks) counts.push_back(of_host.size());
    return fmt::format(
        "hosts have {} ranks: each part crosses the network once per rank; with as many ranks on "
        "every host it would once per host",
        fmt::join(counts, ", "));
  }
  if (is_in_order(hosts)) return {};
  return "neighbouring ranks are on different hosts: all_reduce sends to every rank by itself; "
         "with "
         "consecutive ranks on each host (mpirun --map-by slot) it would send once per host";
}

MpiRoute parse_route(std::string_view text) {
  static const std::vector<std::string> kNames = {"auto", "flat", "hierarchical"};
  const auto found = std::ranges::find(kNames, text);
  if (found != kNames.end()) return static_cast<MpiRoute>(found - kNames.begin());
  throw UserError::format("SHARDBENCH_MPI_ROUTE '{}': choose from {}{}", text, join(kNames),
                          did_you_mean(std::string(text), kNames));
}

}  // namespace shardbench::comm
