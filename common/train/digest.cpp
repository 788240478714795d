#include "common/train/digest.h"

#include <bit>

#include "common/core/simd.h"

namespace shardbench::train {

namespace {

[[gnu::always_inline]] inline std::uint64_t digest_loop(const float* values, std::int64_t begin,
                                                        std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(begin + i);
    std::uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull ^ std::bit_cast<std::uint32_t>(values[i]);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    sum += x ^ (x >> 27);
  }
  return sum;
}

}  // namespace

std::uint64_t digest(const float* values, std::int64_t begin, std::int64_t count) {
  return run_simd<digest_loop>(values, begin, count);
}

std::uint64_t fold(std::uint64_t hash, std::uint64_t next) {
  hash = (hash ^ next) * 0x94D049BB133111EBull;
  return hash ^ (hash >> 31);
}

}  // namespace shardbench::train
