#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shardbench {

/// The angles of rotary position embedding, one table for all layers of a model. Computed at the
/// first use of a length and kept, booked as "other"; a shorter sequence reads its first rows. Not
/// thread-safe: a rank's own.
class RotaryTable {
 public:
  /// `size`: elements per head, even. `theta`: base of the frequencies.
  RotaryTable(std::int64_t size, double theta);

  /// fp32 [at least `length`, size] on `device`, as ops::rotary takes it.
  const at::Tensor& at_least(std::int64_t length, at::Device device = at::kCPU);

 private:
  std::int64_t size_;
  double theta_;
  at::Tensor table_;
};

}  // namespace shardbench
