#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/comm/communicator.h"
#include "common/core/dtype.h"

namespace shardbench::bench {

/// Whole numbers that repeat every kPatternPeriod elements, a prime: what arrives shifted, in
/// another order or from another rank is seen. They are so small that a sum over all ranks is exact
/// in the dtype (bf16 holds whole numbers to 256, fp16 to 2048), whatever the order.
inline constexpr std::int64_t kPatternPeriod = 1021;

/// One period as stored bytes; written to and compared with buffers at any offset.
class Pattern {
 public:
  /// What `rank` puts in. `seed` tells the checks of one row apart.
  static Pattern of_rank(DType dtype, int world_size, int rank, std::uint64_t seed);
  /// What a reduction over all ranks must give: sums start at rank 0's value and go by rank; an
  /// average is one multiplication of the sum by 1 / W in the type it was summed in (fp32 for bf16
  /// and fp16), rounded once.
  static Pattern reduced(DType dtype, comm::ReduceOp op, int world_size, std::uint64_t seed);

  /// out[i] = element (begin + i) of the endless pattern.
  void fill(std::byte* out, std::int64_t begin, std::int64_t count) const;
  /// How many of these elements are not, bit for bit, elements [begin, begin + count) of it.
  std::int64_t wrong(const std::byte* data, std::int64_t begin, std::int64_t count) const;

 private:
  explicit Pattern(DType dtype, const std::vector<double>& values);

  std::size_t element_ = 1;
  std::vector<std::byte> bytes_;
};

/// Largest value of of_rank().
std::int64_t largest_pattern_value(DType dtype, int world_size);

}  // namespace shardbench::bench
