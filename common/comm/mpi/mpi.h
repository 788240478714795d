#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/job.h"
#include "common/comm/mpi/runtime.h"
#include "common/comm/recorder.h"

namespace shardbench::comm {

/// Communicator over MPI messages. Collective over all processes of `runtime` (it has an MPI
/// communicator of its own, so calls of several ones do not mix); `job` has as many ranks. Calls go
/// on in the background while nobody waits. Sums are made by rank from rank 0, as in `shm`: equal
/// bits. Work::last_arrival() is when this rank had every message it needs: there is no clock that
/// all hosts share.
///
/// Ranks that issue different calls: told by name where the first message already shows it (its
/// kind and a checksum of the call travel in the tag), otherwise when the deadline passes.
std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job);

/// The bytes that this rank has sent and received through `communicator`, which make_mpi made. Only
/// its own row and column are filled: every process counts its own messages.
std::shared_ptr<const WireMatrix> mpi_wire_matrix(const Communicator& communicator);

}  // namespace shardbench::comm
