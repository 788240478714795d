#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardbench::micro {

/// How a bare kernel stores: through the caches, or past them.
enum class Stores { kCached, kStreamed };

/// Loops as simple as can be over fp32 memory that starts on 64 bytes: what a collective is
/// measured against. Compiled for several instruction sets; the best one of this CPU runs.
void bare_copy(float* to, const float* from, std::int64_t count, Stores stores);
/// Every target gets the sum of 2 to 4 sources.
void bare_sum(std::span<float* const> to, std::span<const float* const> from, std::int64_t count,
              Stores stores);

}  // namespace shardbench::micro
