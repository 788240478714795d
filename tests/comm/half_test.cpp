#include "common/comm/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/comm/elements.h"

namespace shardbench::comm {
namespace {

TEST(Float16, WidensAllValues) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits));
    const auto expected = static_cast<float>(half);
    const float value = widen(Float16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected));
    }
  }
}

TEST(Float16, NarrowsLikeTheCompiler) {
  // A stride that is prime to 2^32 visits all exponents, signs and many mantissas; the ties and
  // their neighbours are visited besides.
  const auto check = [](std::uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    const std::uint16_t half = narrow_float16(value).bits;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(widen(Float16{half}))) << bits;
    } else {
      ASSERT_EQ(half, expected) << value;
    }
  };
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    check(static_cast<std::uint32_t>(bits));
  }
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = widen(Float16{static_cast<std::uint16_t>(half)});
    const float high = widen(Float16{static_cast<std::uint16_t>(half + 1)});
    const float tie = half + 1 == 0x7c00 ? 65520.0f : (low + high) / 2;
    for (const float value : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      check(std::bit_cast<std::uint32_t>(value));
      check(std::bit_cast<std::uint32_t>(-value));
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 997) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint16_t half = narrow_bfloat16(value).bits;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(widen(BFloat16{half})));
    } else if (std::isinf(widen(BFloat16{half}))) {
      EXPECT_GE(std::abs(value), 3.3895313892515355e38f);
    } else {
      ASSERT_EQ(half, reference_bfloat16(value)) << value;
    }
  }
}

}  // namespace
}  // namespace shardbench::comm
