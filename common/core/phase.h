#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shardbench {

/// The part of a step that something is booked under.
enum class Phase : std::uint8_t { kInit, kForward, kBackward, kOptimizer, kMetrics };
inline constexpr int kPhaseCount = 5;

constexpr std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhaseCount> kNames = {"init", "forward", "backward",
                                                                "optimizer", "metrics"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace shardbench
