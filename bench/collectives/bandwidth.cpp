#include "bench/collectives/bandwidth.h"

#include "common/core/error.h"

namespace shardbench::bench {

double bus_factor(comm::CollectiveKind kind, int world_size) {
  SHARDBENCH_CHECK_GE(world_size, 1);
  const double n = world_size;
  switch (kind) {
    case comm::CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case comm::CollectiveKind::kAllGather:
    case comm::CollectiveKind::kReduceScatter:
      return (n - 1) / n;
    case comm::CollectiveKind::kBroadcast:
    case comm::CollectiveKind::kReduce:
      return 1;
    case comm::CollectiveKind::kBarrier:
      break;
  }
  SHARDBENCH_CHECK(false, "a barrier has no bandwidth");
  return 0;
}

Bandwidth bandwidth_of(comm::CollectiveKind kind, int world_size, std::int64_t size_bytes,
                       double time_us) {
  SHARDBENCH_CHECK(time_us > 0, "{} us", time_us);
  Bandwidth result;
  result.algo_gb_per_s = static_cast<double>(size_bytes) / (time_us * 1e3);
  result.bus_gb_per_s = result.algo_gb_per_s * bus_factor(kind, world_size);
  return result;
}

}  // namespace shardbench::bench
