#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace shardbench {

/// 16-bit floats as plain bits, converted without branches so that loops over them vectorise.
/// Narrowing rounds to nearest even; every NaN becomes the quiet one of its sign.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

[[gnu::always_inline]] inline BFloat16 narrow_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = ((bits >> 16) & 0x8000u) | 0x7fc0u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? nan : rounded)};
}

[[gnu::always_inline]] inline float widen(Float16 value) {
  constexpr std::uint32_t kExponent = 0x7c00u << 13;
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t exponent = magnitude & kExponent;
  const std::uint32_t normal = magnitude + (112u << 23);
  const std::uint32_t special = magnitude + (224u << 23);
  // A subnormal m * 2^-24 is built as (2^-14 + m * 2^-24) - 2^-14, with normal numbers only.
  const float subnormal =
      std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  std::uint32_t bits = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  bits = exponent == kExponent ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

[[gnu::always_inline]] inline Float16 narrow_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14: adding 2^-1 puts the result's bits at the end of the mantissa, rounded.
  constexpr std::uint32_t kMagic = 126u << 23;
  const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - kMagic;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= (143u << 23) ? 0x7c00u : half;
  half = magnitude > (255u << 23) ? 0x7e00u : half;
  return {static_cast<std::uint16_t>(half | sign)};
}

/// So that one loop serves every floating-point type.
[[gnu::always_inline]] inline float widen(float value) { return value; }
[[gnu::always_inline]] inline double widen(double value) { return value; }
template <typename Type>
[[gnu::always_inline]] inline Type narrow(double value) {
  static_assert(std::is_same_v<Type, double>);
  return value;
}
template <typename Type>
[[gnu::always_inline]] inline Type narrow(float value) {
  if constexpr (std::is_same_v<Type, BFloat16>) {
    return narrow_bfloat16(value);
  } else if constexpr (std::is_same_v<Type, Float16>) {
    return narrow_float16(value);
  } else {
    static_assert(std::is_same_v<Type, float>);
    return value;
  }
}

}  // namespace shardbench
