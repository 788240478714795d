#pragma once

#include <cstdint>
#include <string_view>

namespace shardbench::comm {

enum class CollectiveKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kReduce,
  kBarrier
};
inline constexpr int kCollectiveKindCount = 6;

/// all_gather reduce_scatter all_reduce broadcast reduce barrier
constexpr std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[kCollectiveKindCount] = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "barrier"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace shardbench::comm
