#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// Reference arithmetic of the tests, written apart from the library's: slow and obvious.

/// The bf16 nearest to `value` (ties to even), as bits. Finite values in range only.
inline std::uint16_t reference_bfloat16(double value) {
  const auto as_float = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &as_float, 4);
  const auto down = static_cast<std::uint16_t>(bits >> 16);
  const auto up = static_cast<std::uint16_t>(down + 1);
  const auto widen = [](std::uint16_t half) {
    const std::uint32_t wide = static_cast<std::uint32_t>(half) << 16;
    float result = 0;
    std::memcpy(&result, &wide, 4);
    return static_cast<double>(result);
  };
  const double below = std::abs(as_float - widen(down));
  const double above = std::abs(as_float - widen(up));
  if (below != above) return below < above ? down : up;
  return down % 2 == 0 ? down : up;
}

inline void store_element(DType dtype, double value, void* at) {
  const auto put = [at](auto stored) { std::memcpy(at, &stored, sizeof(stored)); };
  switch (dtype) {
    case DType::kFloat64:
      return put(value);
    case DType::kFloat32:
      return put(static_cast<float>(value));
    case DType::kBFloat16:
      return put(reference_bfloat16(value));
    case DType::kFloat16:
      return put(static_cast<_Float16>(static_cast<float>(value)));
    case DType::kInt64:
      return put(static_cast<std::int64_t>(value));
    case DType::kUInt8:
      return put(static_cast<std::uint8_t>(value));
  }
}

inline double load_element(DType dtype, const void* element) {
  std::byte at[8] = {};  // as wide as the widest, so that every case below stays inside
  std::memcpy(at, element, size_of(dtype));
  const auto get = [&at](auto stored) {
    std::memcpy(&stored, at, sizeof(stored));
    return static_cast<double>(stored);
  };
  switch (dtype) {
    case DType::kFloat64:
      return get(double{});
    case DType::kFloat32:
      return get(float{});
    case DType::kFloat16:
      return get(_Float16{});
    case DType::kInt64:
      return get(std::int64_t{});
    case DType::kUInt8:
      return get(std::uint8_t{});
    case DType::kBFloat16: {
      std::uint16_t half = 0;
      std::memcpy(&half, at, 2);
      const std::uint32_t wide = static_cast<std::uint32_t>(half) << 16;
      float value = 0;
      std::memcpy(&value, &wide, 4);
      return value;
    }
  }
  return 0;
}

/// What the collectives must give for `values` by rank, before it is stored.
inline double reference_reduce(DType dtype, ReduceOp op, const std::vector<double>& values) {
  double result = values[0];
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    result = op == ReduceOp::kMax ? std::max(result, values[rank]) : result + values[rank];
  }
  if (op != ReduceOp::kAverage) return result;
  const double factor = 1.0 / static_cast<double>(values.size());
  if (dtype == DType::kFloat64) return result * factor;
  return static_cast<float>(result) * static_cast<float>(factor);
}

inline std::vector<DType> all_dtypes() {
  return {DType::kFloat64, DType::kFloat32, DType::kBFloat16,
          DType::kFloat16, DType::kInt64,   DType::kUInt8};
}

inline bool is_defined(DType dtype, ReduceOp op) {
  if (dtype == DType::kUInt8) return false;
  return dtype != DType::kInt64 || op != ReduceOp::kAverage;
}

/// Memory for `count` elements, in symmetric memory or not, starting one element past a 64-byte
/// boundary, filled with a pattern that no result has.
class TestBuffer {
 public:
  TestBuffer(Communicator& comm, bool symmetric, DType dtype, std::int64_t count)
      : dtype_(dtype), count_(count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) + 1) * size_of(dtype);
    if (symmetric) {
      memory_ = comm.symmetric_empty(bytes);
      data_ = static_cast<std::byte*>(memory_.data()) + size_of(dtype);
    } else {
      plain_.resize(bytes);
      data_ = plain_.data() + size_of(dtype);
    }
    std::memset(data_, kFill, static_cast<std::size_t>(count) * size_of(dtype));
  }

  Buffer buffer() { return {data_, count_, dtype_}; }
  std::int64_t count() const { return count_; }
  void set(std::int64_t i, double value) { store_element(dtype_, value, at(i)); }
  double get(std::int64_t i) const { return load_element(dtype_, at(i)); }
  bool untouched(std::int64_t i) const {
    for (std::size_t b = 0; b < size_of(dtype_); ++b) {
      if (at(i)[b] != std::byte{kFill}) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kFill = 0x5a;
  std::byte* at(std::int64_t i) const {
    return data_ + static_cast<std::size_t>(i) * size_of(dtype_);
  }

  DType dtype_;
  std::int64_t count_;
  SymmetricMemory memory_;
  std::vector<std::byte> plain_;
  std::byte* data_ = nullptr;
};

/// `value` as `dtype` stores it.
inline double rounded(DType dtype, double value) {
  std::byte stored[8];
  store_element(dtype, value, stored);
  return load_element(dtype, stored);
}

/// Small whole numbers that differ by rank and element; never below zero, so that they fit uint8.
inline double test_value(int rank, std::int64_t i) {
  return static_cast<double>((rank * 7 + i * 5) % 13);
}

/// Layouts of every awkward form over `world_size` ranks.
inline std::vector<sharding::ShardLayout> test_layouts(int world_size) {
  using sharding::Segment;
  using sharding::ShardLayout;
  const auto ranks = static_cast<std::size_t>(world_size);
  std::vector<std::int64_t> uneven(ranks);
  std::vector<std::int64_t> one(ranks, 0);
  std::vector<std::int64_t> last_only(ranks, 0);
  std::vector<std::vector<Segment>> gaps(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    uneven[r] = static_cast<std::int64_t>((r * 5 + 3) % 7);
    const auto rank = static_cast<std::int64_t>(r);
    // Two segments per rank, out of order in the shard, with gaps in both; odd ranks one more that
    // is empty.
    gaps[r] = {{7, rank * 5, 3}, {1, world_size * 5 + 2 + rank * 9, 4}};
    if (r % 2 == 1) gaps[r].push_back({2, 3, 0});
  }
  one[0] = 1;
  last_only.back() = 9;
  return {ShardLayout::even(23, world_size),
          ShardLayout::contiguous(uneven),
          ShardLayout::contiguous(one),
          ShardLayout::contiguous(last_only),
          ShardLayout(gaps),
          ShardLayout::even(0, world_size),
          ShardLayout::even(5000, world_size, 16)};
}

}  // namespace shardbench::comm
