#pragma once

#include <chrono>
#include <cstdint>

#include "common/comm/call_shape.h"
#include "common/comm/link.h"

namespace shardbench::comm {

/// When each direction of a port is free.
struct PortFree {
  std::chrono::steady_clock::time_point send;
  std::chrono::steady_clock::time_point receive;
};

/// What one call asks of a port.
struct PortLoad {
  int rounds = 0;
  AlgoBytes bytes;
};

/// The load of a call on the port of `rank` and, where the link has hosts, on its host's port.
struct CallLoad {
  PortLoad rank;
  PortLoad host;
};
CallLoad load_of(const LinkModel& link, const CallShape& shape, int world_size, int rank);

/// When one call occupies a port. A pure function of its arguments: starts when the call is
/// `ready` (every rank has issued it) and the directions that it uses are free (one without bytes
/// uses both); occupies each for rounds x latency + its bytes / rate, and finishes when both are
/// through. So a broadcast goes beside one that comes: the port is full-duplex.
struct PortUse {
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point finish;
  PortFree free;  ///< afterwards
};
PortUse schedule(const LinkSpeed& speed, const PortLoad& load,
                 std::chrono::steady_clock::time_point ready, const PortFree& port);

}  // namespace shardbench::comm
