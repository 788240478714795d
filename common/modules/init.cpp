#include "common/modules/init.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "common/core/error.h"
#include "common/core/simd.h"

namespace shardbench {

namespace {

std::uint64_t key_of(std::string_view name, std::uint64_t seed) {
  std::uint64_t hash = 14695981039346656037ull ^ seed * 0x9E3779B97F4A7C15ull;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash ^ (hash >> 29);
}

/// A 32-bit mixer (two xor-multiply rounds); 32-bit arithmetic so that loops vectorise.
inline std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x21F0AAADu;
  x ^= x >> 15;
  x *= 0xD35A2D97u;
  return x ^ (x >> 15);
}

/// Uniform in (0, 1], 24 bits.
inline float uniform(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8) + 1) * 0x1p-24f;
}

// Logarithm and cosine from multiplications and additions only: the same bits whatever the vector
// width and the C library. About 1e-6 relative, plenty for random weights.
inline float log_of(float u) {
  const std::int32_t bits = std::bit_cast<std::int32_t>(u);
  const float exponent = static_cast<float>((bits >> 23) - 127);
  const float m = std::bit_cast<float>((bits & 0x7FFFFF) | 0x3F800000);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float s2 = s * s;
  const float series = 1.0f + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9))));
  return exponent * 0.69314718056f + 2.0f * s * series;
}

inline float cosine_of_turn(float v) {  // cos(2 pi v), v in (0, 1]
  const float y = 6.28318530718f * (std::fabs(v - 0.5f) - 0.25f);
  const float y2 = y * y;
  return y * (1.0f + y2 * (-1.0f / 6 + y2 * (1.0f / 120 + y2 * (-1.0f / 5040 + y2 / 362880.0f))));
}

struct Stream {
  std::uint32_t low;   ///< key of the first draw
  std::uint32_t high;  ///< key of the second
};

Stream stream_of(std::uint64_t key, std::uint64_t block) {
  return {
      static_cast<std::uint32_t>(key) ^ mix(static_cast<std::uint32_t>(block) + 0x9E3779B9u),
      static_cast<std::uint32_t>(key >> 32) ^ mix(static_cast<std::uint32_t>(block) + 0x85EBCA6Bu)};
}

[[gnu::always_inline]] inline void fill_normal(Stream stream, std::uint32_t first,
                                               std::int64_t count, float scale, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t index = first + static_cast<std::uint32_t>(i);
    const float u = uniform(mix(index ^ stream.low));
    const float v = uniform(mix(index * 0x9E3779B1u ^ stream.high));
    out[i] = scale * (std::sqrt(-2.0f * log_of(u)) * cosine_of_turn(v));
  }
}

[[gnu::always_inline]] inline void fill_uniform(Stream stream, std::uint32_t first,
                                                std::int64_t count, float bound, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t index = first + static_cast<std::uint32_t>(i);
    out[i] = bound * (2.0f * uniform(mix(index ^ stream.low)) - 1.0f);
  }
}

void copy_given(const Parameter& parameter, std::int64_t begin, std::int64_t count, float* out) {
  const at::Tensor& given = parameter.given_values();
  if (!given.defined()) {
    throw UserError::format(
        "the given values of parameter {} were let go when a strategy took them; give them again "
        "before attaching another one",
        parameter.name());
  }
  std::copy_n(given.const_data_ptr<float>() + begin, count, out);
}

}  // namespace

void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                std::int64_t count, float* out) {
  const float scale = static_cast<float>(parameter.init().scale);
  if (parameter.init().kind == Init::Kind::kConstant) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = scale;
    return;
  }
  if (parameter.init().kind == Init::Kind::kGiven) {
    copy_given(parameter, begin, count, out);
    return;
  }
  const std::uint64_t key = key_of(parameter.name(), seed);
  constexpr std::int64_t kBlock = std::int64_t{1} << 32;  // indices are 32 bits inside a block
  while (count > 0) {
    const std::int64_t in_block = std::min(count, kBlock - begin % kBlock);
    const Stream stream = stream_of(key, static_cast<std::uint64_t>(begin / kBlock));
    const auto first = static_cast<std::uint32_t>(begin % kBlock);
    if (parameter.init().kind == Init::Kind::kNormal) {
      run_simd<fill_normal>(stream, first, in_block, scale, out);
    } else {
      run_simd<fill_uniform>(stream, first, in_block, scale, out);
    }
    begin += in_block;
    out += in_block;
    count -= in_block;
  }
}

}  // namespace shardbench
