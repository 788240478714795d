#pragma once

#include "common/core/simd.h"

namespace shardbench::testing {

/// Takes a width for as long as it lives.
class WithSimdWidth {
 public:
  explicit WithSimdWidth(SimdWidth width) { use_simd_width(width); }
  ~WithSimdWidth() { use_simd_width(before_); }
  WithSimdWidth(const WithSimdWidth&) = delete;
  WithSimdWidth& operator=(const WithSimdWidth&) = delete;

 private:
  SimdWidth before_ = simd_width();
};

}  // namespace shardbench::testing
