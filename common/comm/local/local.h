#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/recorder.h"

namespace shardbench::comm {

/// W = 1 without shared memory.
std::unique_ptr<Communicator> make_local();

/// The wire matrix that belongs to it: one rank never sends anything.
std::shared_ptr<const WireMatrix> local_wire_matrix();

}  // namespace shardbench::comm
