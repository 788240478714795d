#include "common/core/simd.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench {
namespace {

std::atomic<SimdWidth>& width_in_use() {
  static std::atomic<SimdWidth> width = simd_widths().back();
  return width;
}

}  // namespace

std::string_view name_of(SimdWidth width) {
  switch (width) {
    case SimdWidth::kPortable:
      return "portable";
    case SimdWidth::kAvx2:
      return "avx2";
    case SimdWidth::kAvx512:
      return "avx512";
  }
  return "?";
}

std::vector<SimdWidth> simd_widths() {
  std::vector<SimdWidth> widths = {SimdWidth::kPortable};
#if defined(SHARDBENCH_HAS_SIMD_WIDTHS)
  if (__builtin_cpu_supports("avx2")) widths.push_back(SimdWidth::kAvx2);
  if (__builtin_cpu_supports("x86-64-v4")) widths.push_back(SimdWidth::kAvx512);
#endif
  return widths;
}

bool has_bf16_products() {
#if defined(SHARDBENCH_HAS_SIMD_WIDTHS)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

SimdWidth simd_width() { return width_in_use().load(std::memory_order_relaxed); }

void use_simd_width(SimdWidth width) {
  const std::vector<SimdWidth> widths = simd_widths();
  if (std::find(widths.begin(), widths.end(), width) == widths.end()) {
    std::vector<std::string> names;
    for (const SimdWidth known : widths) names.emplace_back(name_of(known));
    throw UserError::format("{}: this CPU, or this build, does not have it; it has {}",
                            name_of(width), join(names));
  }
  width_in_use().store(width, std::memory_order_relaxed);
}

}  // namespace shardbench
