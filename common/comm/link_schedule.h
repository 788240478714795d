#pragma once

#include <chrono>
#include <cstdint>

#include "common/comm/link.h"

namespace shardbench::comm {

/// When one call occupies a rank's port. A pure function of its arguments: starts when the last
/// rank has issued the call and the port is free; takes rounds x latency + max(sent, received) /
/// rate, since the port is full-duplex.
struct PortUse {
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point finish;
};
PortUse schedule(const LinkModel& link, int rounds, AlgoBytes bytes,
                 std::chrono::steady_clock::time_point last_arrival,
                 std::chrono::steady_clock::time_point port_free);

}  // namespace shardbench::comm
