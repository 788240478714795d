#pragma once

#include <memory>
#include <string>

#include "bench/collectives/peer_report.h"
#include "bench/peers/tools.h"

namespace shardbench::bench {

/// Measures the rows of `request` with another library: "gloo" through torch.distributed, "mpi"
/// through the first MPI whose program lies beside `executable` and whose mpirun is on PATH.
CollectivePeer run_collective_peer(const std::string& name, const PeerTools& tools,
                                   const std::string& executable,
                                   const CollectivesRequest& request);

/// Ours and the peers in turns, `rounds` times. A peer that failed is not run again; a signal ends
/// it all.
PeersReport run_beside_peers(comm::Ranks& ranks, const CollectivesRequest& request,
                             const std::vector<std::string>& peers, const PeerTools& tools,
                             const std::string& executable, int rounds,
                             const std::function<void(const std::string& what)>& begin = {});

}  // namespace shardbench::bench
