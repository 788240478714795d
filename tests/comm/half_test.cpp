#include "common/core/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/comm/convert.h"
#include "common/core/error.h"
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

template <typename Half>
class Convert : public ::testing::Test {};
struct Brain {
  static constexpr DType kDType = DType::kBFloat16;
  static std::uint16_t bits_of(float value) { return narrow_bfloat16(value).bits; }
  static float value_of(std::uint16_t bits) { return widen(BFloat16{bits}); }
};
struct Ieee {
  static constexpr DType kDType = DType::kFloat16;
  static std::uint16_t bits_of(float value) { return narrow_float16(value).bits; }
  static float value_of(std::uint16_t bits) { return widen(Float16{bits}); }
};
using HalfTypes = ::testing::Types<Brain, Ieee>;
TYPED_TEST_SUITE(Convert, HalfTypes);

TYPED_TEST(Convert, BuffersElementByElement) {
  for (const std::size_t count : {0u, 1u, 15u, 16u, 65536u}) {
    std::vector<std::uint16_t> bits(count);
    for (std::size_t i = 0; i < count; ++i) bits[i] = static_cast<std::uint16_t>(i * 40503u);
    std::vector<float> wide(count), sum(count, 0.5f);
    const auto n = static_cast<std::int64_t>(count);
    const ConstBuffer narrow{bits.data(), n, TypeParam::kDType};
    convert(narrow, {wide.data(), n, DType::kFloat32});
    widen_into(narrow, sum.data(), /*add=*/true);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = TypeParam::value_of(bits[i]);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(sum[i]));
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(value));
        ASSERT_EQ(sum[i], 0.5f + value);
      }
    }
    // Values between those of the dtype, the ties among them.
    std::vector<std::uint16_t> back(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t tie = i % 2 == 0 ? 0u : 1u << 15;
      wide[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(wide[i]) ^ tie);
    }
    convert({wide.data(), n, DType::kFloat32}, {back.data(), n, TypeParam::kDType});
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(back[i], TypeParam::bits_of(wide[i]));
  }
}

TYPED_TEST(Convert, RefusesWhatItCannot) {
  float value = 0;
  std::int64_t number = 0;
  EXPECT_THROW(convert({&value, 1, DType::kFloat32}, {&number, 1, DType::kInt64}), InvariantError);
  EXPECT_THROW(convert({&value, 1, DType::kFloat32}, {&number, 2, TypeParam::kDType}),
               InvariantError);
}

}  // namespace
}  // namespace shardbench::comm
