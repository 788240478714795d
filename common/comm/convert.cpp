#include "common/comm/convert.h"

#include <cstring>

#include "common/comm/half.h"
#include "common/core/error.h"
#include "common/core/simd.h"

namespace shardbench::comm {
namespace {

#define SHARDBENCH_NARROW(name, Type, function)                                  \
  SHARDBENCH_CLONES void name(const float* __restrict from, Type* __restrict to, \
                              std::int64_t count) {                              \
    for (std::int64_t i = 0; i < count; ++i) to[i] = function(from[i]);          \
  }
SHARDBENCH_NARROW(narrow_all_bf16, BFloat16, narrow_bfloat16)
SHARDBENCH_NARROW(narrow_all_fp16, Float16, narrow_float16)
#undef SHARDBENCH_NARROW

#define SHARDBENCH_WIDEN(name, Type)                                             \
  SHARDBENCH_CLONES void name(const Type* __restrict from, float* __restrict to, \
                              std::int64_t count, bool add) {                    \
    if (add) {                                                                   \
      for (std::int64_t i = 0; i < count; ++i) to[i] += widen(from[i]);          \
    } else {                                                                     \
      for (std::int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);           \
    }                                                                            \
  }
SHARDBENCH_WIDEN(widen_all_bf16, BFloat16)
SHARDBENCH_WIDEN(widen_all_fp16, Float16)
#undef SHARDBENCH_WIDEN

SHARDBENCH_CLONES void add_all(const float* __restrict from, float* __restrict to,
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
    narrow_all_bf16(values, static_cast<BFloat16*>(to.data), from.count);
  } else {
    narrow_all_fp16(values, static_cast<Float16*>(to.data), from.count);
  }
}

void widen_into(ConstBuffer from, float* to, bool add) {
  switch (from.dtype) {
    case DType::kBFloat16:
      return widen_all_bf16(static_cast<const BFloat16*>(from.data), to, from.count, add);
    case DType::kFloat16:
      return widen_all_fp16(static_cast<const Float16*>(from.data), to, from.count, add);
    case DType::kFloat32:
      if (add) return add_all(static_cast<const float*>(from.data), to, from.count);
      return convert(from, {to, from.count, DType::kFloat32});
    default:
      SHARDBENCH_CHECK(false, "no conversion from {} to fp32", name_of(from.dtype));
  }
}

}  // namespace shardbench::comm
