#include "common/optim/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace shardbench::optim {

void ExactSum::add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF);
  if (exponent == 0x7FF || (bits >> 63) != 0) {
    limbs_[kLimbs - 1] += term != 0;  // NaN, infinity or negative: not a square
    return;
  }
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent > 0) mantissa |= std::uint64_t{1} << 52;
  const int position = exponent > 0 ? exponent - 1 : 0;  // of the mantissa's lowest bit
  const int limb = position / 32;
  const auto wide = static_cast<unsigned __int128>(mantissa) << (position % 32);
  limbs_[static_cast<std::size_t>(limb)] += static_cast<std::uint32_t>(wide);
  limbs_[static_cast<std::size_t>(limb) + 1] += static_cast<std::uint32_t>(wide >> 32);
  limbs_[static_cast<std::size_t>(limb) + 2] += static_cast<std::uint32_t>(wide >> 64);
}

double ExactSum::value() const {
  if (limbs_[kLimbs - 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  std::array<std::uint32_t, kLimbs + 1> digits{};
  std::int64_t carry = 0;
  for (int i = 0; i < kLimbs - 1; ++i) {
    const std::int64_t sum = limbs_[static_cast<std::size_t>(i)] + carry;
    digits[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(sum);
    carry = sum >> 32;
  }
  int top = kLimbs - 2;
  while (top > 0 && digits[static_cast<std::size_t>(top)] == 0) --top;
  // The top three limbs hold at least 65 significant bits; what lies below only has to break ties.
  double result = 0;
  bool sticky = false;
  for (int i = 0; i < top - 2; ++i) sticky = sticky || digits[static_cast<std::size_t>(i)] != 0;
  unsigned __int128 head = 0;
  const int lowest = top < 2 ? 0 : top - 2;
  for (int i = top; i >= lowest; --i) head = head << 32 | digits[static_cast<std::size_t>(i)];
  int shift = 0;
  while ((head >> 62) != 0) {
    sticky = sticky || (head & 1) != 0;
    head >>= 1;
    ++shift;
  }
  result = static_cast<double>(static_cast<std::int64_t>(head | (sticky ? 1 : 0)));
  return std::ldexp(result, shift + 32 * lowest - 1074);
}

}  // namespace shardbench::optim
