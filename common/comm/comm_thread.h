#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// Carries every call of this rank on a thread of its own, so that bytes move while the caller
/// computes: calls are issued there in the caller's order, and nothing has to be waited for to
/// make them move. The results are the same to the bit. symmetric_empty and abort go straight to
/// `inner`, which must allow them beside its calls (all backends of host memory do).
///
/// Timing of its calls: peer_wait_ns is what the caller stood in waits, move_ns is 0, and
/// `background` and `blocked` say when.
std::unique_ptr<Communicator> with_comm_thread(std::unique_ptr<Communicator> inner);

/// Cores that this process may use: a thread beside the computing one needs a second.
int usable_cores();

}  // namespace shardbench::comm
