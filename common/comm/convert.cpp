#include "common/comm/convert.h"

#include <cstring>

#include "common/core/error.h"
#include "common/core/half.h"
#include "common/core/simd.h"

namespace shardbench::comm {
namespace {

template <typename Type>
[[gnu::always_inline]] inline void narrow_all(const float* __restrict from, Type* __restrict to,
                                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<Type>(from[i]);
}

template <typename Type>
[[gnu::always_inline]] inline void widen_all(const Type* __restrict from, float* __restrict to,
                                             std::int64_t count, bool add) {
  if (add) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += widen(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
  }
}

[[gnu::always_inline]] inline void add_all(const float* __restrict from, float* __restrict to,
                                           std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

void convert(ConstBuffer from, Buffer to) {
  SHARDBENCH_CHECK_EQ(from.count, to.count);
  if (from.count == 0) return;
  if (from.dtype == to.dtype) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.count) * size_of(from.dtype));
    return;
  }
  if (to.dtype == DType::kFloat32) return widen_into(from, static_cast<float*>(to.data), false);
  SHARDBENCH_CHECK(from.dtype == DType::kFloat32 && is_half_width(to.dtype),
                   "no conversion from {} to {}", name_of(from.dtype), name_of(to.dtype));
  const auto* values = static_cast<const float*>(from.data);
  if (to.dtype == DType::kBFloat16) {
    run_simd<narrow_all<BFloat16>>(values, static_cast<BFloat16*>(to.data), from.count);
  } else {
    run_simd<narrow_all<Float16>>(values, static_cast<Float16*>(to.data), from.count);
  }
}

void widen_into(ConstBuffer from, float* to, bool add) {
  switch (from.dtype) {
    case DType::kBFloat16:
      return run_simd<widen_all<BFloat16>>(static_cast<const BFloat16*>(from.data), to, from.count,
                                           add);
    case DType::kFloat16:
      return run_simd<widen_all<Float16>>(static_cast<const Float16*>(from.data), to, from.count,
                                          add);
    case DType::kFloat32:
      if (add) return run_simd<add_all>(static_cast<const float*>(from.data), to, from.count);
      return convert(from, {to, from.count, DType::kFloat32});
    default:
      SHARDBENCH_CHECK(false, "no conversion from {} to fp32", name_of(from.dtype));
  }
}

}  // namespace shardbench::comm
