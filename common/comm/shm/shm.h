#pragma once

#include <cstddef>
#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/job.h"
#include "common/comm/recorder.h"

namespace shardbench::comm {

/// Communicator of one rank over the job's shared segment. The same code serves forked ranks and
/// ranks that are threads of one process.
std::unique_ptr<Communicator> make_shm(std::shared_ptr<Job> job, int rank);

/// The bytes that `make_shm` communicators of this job have moved.
std::shared_ptr<const WireMatrix> wire_matrix(std::shared_ptr<Job> job);

}  // namespace shardbench::comm
