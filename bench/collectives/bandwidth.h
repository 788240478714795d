#pragma once

#include <cstdint>

#include "common/comm/kind.h"

namespace shardbench::bench {

/// GB/s (1e9 bytes) of one collective. `algo` = S / t with S the full payload; `bus` = algo x
/// factor, which can be compared with what the hardware moves whatever the number of ranks.
/// Source: nccl-tests, doc/PERFORMANCE.md.
struct Bandwidth {
  double algo_gb_per_s = 0;
  double bus_gb_per_s = 0;
};

/// all_reduce 2(n-1)/n; all_gather, reduce_scatter (n-1)/n; broadcast, reduce 1.
double bus_factor(comm::CollectiveKind kind, int world_size);

/// `size_bytes`: the full payload (all_gather's output, reduce_scatter's input); `time_us` > 0.
Bandwidth bandwidth_of(comm::CollectiveKind kind, int world_size, std::int64_t size_bytes,
                       double time_us);

}  // namespace shardbench::bench
