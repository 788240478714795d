#include "common/comm/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/simd.h"

namespace shardbench::comm {
namespace {

std::vector<std::byte> numbers(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((i * 37 + i / 251) % 256);
  return data;
}

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

void expect_every_byte_and_no_other(Copy copy) {
  constexpr std::size_t kMargin = 128;
  const std::vector<std::byte> source = numbers(10'000 + kMargin);
  for (const std::size_t to_shift : {0u, 1u, 16u, 63u, 64u}) {
    for (const std::size_t from_shift : {0u, 3u, 64u}) {
      for (const std::size_t bytes : {0u, 1u, 63u, 64u, 511u, 512u, 2048u, 2049u, 4100u, 9'999u}) {
        for (const SimdWidth width : simd_widths()) {
          const testing::WithSimdWidth in_use(width);
          std::vector<std::byte> target(bytes + 2 * kMargin, std::byte{0xee});
          copy(target.data() + to_shift, source.data() + from_shift, bytes);
          for (std::size_t i = 0; i < target.size(); ++i) {
            const bool inside = i >= to_shift && i < to_shift + bytes;
            ASSERT_EQ(target[i], inside ? source[i - to_shift + from_shift] : std::byte{0xee})
                << name_of(width) << ": " << bytes << " bytes from +" << from_shift << " to +"
                << to_shift << ", byte " << i;
          }
        }
      }
    }
  }
}

TEST(CopyStreamed, EveryByteAndNoOther) { expect_every_byte_and_no_other(copy_streamed); }

TEST(CopyFromMemory, EveryByteAndNoOther) { expect_every_byte_and_no_other(copy_from_memory); }

TEST(CopyPart, IsACopyBelowAndAboveTheLimits) {
  const std::vector<std::byte> source = numbers(kStreamedPartBytes + 77);
  for (const std::size_t payload : {std::size_t{0}, kStreamedPayloadBytes}) {
    for (const std::size_t bytes :
         {std::size_t{5}, kStreamedPartBytes - 1, kStreamedPartBytes + 77}) {
      std::vector<std::byte> target(bytes + 1, std::byte{0xee});
      copy_part(target.data(), source.data(), bytes, payload);
      EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(bytes),
                             target.begin()));
      EXPECT_EQ(target.back(), std::byte{0xee});
    }
  }
}

}  // namespace
}  // namespace shardbench::comm
