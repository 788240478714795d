#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/job.h"
#include "common/comm/launch/group.h"
#include "common/comm/mpi/placement.h"
#include "common/comm/mpi/runtime.h"
#include "common/comm/recorder.h"

namespace shardbench::comm {

/// Communicator over MPI messages. Collective over all processes of `runtime` (it has an MPI
/// communicator of its own, so calls of several ones do not mix); `job` has as many ranks. Calls go
/// on in the background while nobody waits. Sums are made by rank from rank 0, as in `shm`: equal
/// bits. Work::last_arrival() is when this rank had every message it needs: there is no clock that
/// all hosts share.
///
/// In the second form ranks of one host share memory: on several hosts each part of a large
/// all_gather, broadcast or all_reduce crosses the network once per host (see placement.h).
///
/// Ranks that issue different calls: told by name where the first message already shows it (its
/// kind and a checksum of the call travel in the tag), otherwise when the deadline passes.
std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job);
std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime, Group& group,
                                       MpiRoute route);

/// The bytes that this rank has sent and received through `communicator`, which make_mpi made. Only
/// its own row and column are filled: every process counts its own messages. In a hierarchical call
/// a rank may send for others: sums over ranks are those of a flat one, a rank's share may not be.
std::shared_ptr<const WireMatrix> mpi_wire_matrix(const Communicator& communicator);

}  // namespace shardbench::comm
