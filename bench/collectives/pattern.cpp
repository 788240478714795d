#include "bench/collectives/pattern.h"

#include <algorithm>
#include <cstring>

#include "common/core/error.h"
#include "common/core/half.h"

namespace shardbench::bench {
namespace {

/// Every whole number up to this one is exact.
std::int64_t exact_to(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 256;
    case DType::kFloat16:
      return 2048;
    default:
      return 1 << 20;
  }
}

/// The finalizer of splitmix64.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::int64_t value_at(DType dtype, int world_size, int rank, std::uint64_t seed, std::int64_t i) {
  const std::uint64_t key =
      (seed << 32) ^ (static_cast<std::uint64_t>(rank) << 16) ^ static_cast<std::uint64_t>(i);
  const auto values = static_cast<std::uint64_t>(largest_pattern_value(dtype, world_size)) + 1;
  return static_cast<std::int64_t>(mix(key) % values);
}

template <typename Stored>
void store(Stored value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

/// Whole numbers and averages; fp32 and narrower take a value that is an fp32 already.
void store_as(DType dtype, double value, std::byte* at) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat64:
      return store(value, at);
    case DType::kFloat32:
      return store(single, at);
    case DType::kBFloat16:
      return store(narrow_bfloat16(single).bits, at);
    case DType::kFloat16:
      return store(narrow_float16(single).bits, at);
    case DType::kInt64:
      return store(static_cast<std::int64_t>(value), at);
    case DType::kUInt8:
      break;
  }
  SHARDBENCH_CHECK(false, "no pattern of {}", name_of(dtype));
}

double average(DType dtype, std::int64_t sum, int world_size) {
  const double factor = 1.0 / world_size;
  if (dtype == DType::kFloat64) return static_cast<double>(sum) * factor;
  const float single = static_cast<float>(sum) * static_cast<float>(factor);
  return single;
}

}  // namespace

std::int64_t largest_pattern_value(DType dtype, int world_size) {
  return std::max<std::int64_t>(1, exact_to(dtype) / world_size);
}

Pattern::Pattern(DType dtype, const std::vector<double>& values)
    : element_(size_of(dtype)), bytes_(values.size() * element_) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_as(dtype, values[i], bytes_.data() + i * element_);
  }
}

Pattern Pattern::of_rank(DType dtype, int world_size, int rank, std::uint64_t seed) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < kPatternPeriod; ++i) {
    values.push_back(static_cast<double>(value_at(dtype, world_size, rank, seed, i)));
  }
  return Pattern(dtype, values);
}

Pattern Pattern::reduced(DType dtype, comm::ReduceOp op, int world_size, std::uint64_t seed) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < kPatternPeriod; ++i) {
    std::int64_t sum = 0;
    std::int64_t most = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const std::int64_t value = value_at(dtype, world_size, rank, seed, i);
      sum += value;
      most = std::max(most, value);
    }
    switch (op) {
      case comm::ReduceOp::kSum:
        values.push_back(static_cast<double>(sum));
        break;
      case comm::ReduceOp::kAverage:
        values.push_back(average(dtype, sum, world_size));
        break;
      case comm::ReduceOp::kMax:
        values.push_back(static_cast<double>(most));
        break;
    }
  }
  return Pattern(dtype, values);
}

void Pattern::fill(std::byte* out, std::int64_t begin, std::int64_t count) const {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kPatternPeriod;
    const std::int64_t n = std::min(kPatternPeriod - at, count - done);
    std::memcpy(out + static_cast<std::size_t>(done) * element_,
                bytes_.data() + static_cast<std::size_t>(at) * element_,
                static_cast<std::size_t>(n) * element_);
    done += n;
  }
}

std::int64_t Pattern::wrong(const std::byte* data, std::int64_t begin, std::int64_t count) const {
  std::int64_t wrong = 0;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kPatternPeriod;
    const std::int64_t n = std::min(kPatternPeriod - at, count - done);
    const std::byte* const have = data + static_cast<std::size_t>(done) * element_;
    const std::byte* const want = bytes_.data() + static_cast<std::size_t>(at) * element_;
    if (std::memcmp(have, want, static_cast<std::size_t>(n) * element_) != 0) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        wrong += std::memcmp(have + i * element_, want + i * element_, element_) != 0 ? 1 : 0;
      }
    }
    done += n;
  }
  return wrong;
}

}  // namespace shardbench::bench
