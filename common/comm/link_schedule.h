#pragma once

#include <chrono>
#include <cstdint>

#include "common/comm/link.h"

namespace shardbench::comm {

/// When each direction of a rank's port is free.
struct PortFree {
  std::chrono::steady_clock::time_point send;
  std::chrono::steady_clock::time_point receive;
};

/// When one call occupies a rank's port. A pure function of its arguments: starts when the last
/// rank has issued the call and the directions that it uses are free (one without bytes uses both);
/// occupies each for rounds x latency + its bytes / rate, and finishes when both are through. So a
/// broadcast goes beside one that comes: the port is full-duplex.
struct PortUse {
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point finish;
  PortFree free;  ///< afterwards
};
PortUse schedule(const LinkModel& link, int rounds, AlgoBytes bytes,
                 std::chrono::steady_clock::time_point last_arrival, const PortFree& port);

}  // namespace shardbench::comm
