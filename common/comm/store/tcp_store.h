#pragma once

#include <chrono>

#include "common/comm/launch/control.h"
#include "common/comm/launch/environment.h"

namespace shardbench::comm {

/// Rank 0's text through the c10d::TCPStore at MASTER_ADDR:MASTER_PORT, which torchrun's agent
/// serves, or rank 0 itself where there is no agent. Throws UserError when the store cannot be
/// reached, its port is taken, or rank 0 has not come within `timeout`. An OpenStore.
ShareText open_tcp_store(const LaunchEnvironment& found, std::chrono::milliseconds timeout);

}  // namespace shardbench::comm
