#pragma once

#include <string_view>
#include <vector>

// Other compilers and CPUs have the portable width only.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SHARDBENCH_HAS_SIMD_WIDTHS 1
#endif

namespace shardbench {

/// Instruction sets that loops over elements are compiled for, narrowest first: that of the build,
/// AVX2, and AVX-512 as of x86-64-v4.
enum class SimdWidth { kPortable, kAvx2, kAvx512 };

/// "portable", "avx2" or "avx512".
std::string_view name_of(SimdWidth width);
/// Those that this build and this CPU have, narrowest first; never empty.
std::vector<SimdWidth> simd_widths();

/// The one in use: the widest there is until another is asked for.
SimdWidth simd_width();
/// Takes `width` from now on, in this process and in those that it forks; not while loops run in
/// other threads. Throws UserError naming the widths there are when it is none of them.
void use_simd_width(SimdWidth width);

/// Whether the CPU multiplies bf16 numbers by itself (AVX512_BF16).
bool has_bf16_products();

/// One instance of a loop for each width.
template <auto kLoop, typename... Arguments>
auto run_portable(Arguments... arguments) {
  return kLoop(arguments...);
}
#if defined(SHARDBENCH_HAS_SIMD_WIDTHS)
template <auto kLoop, typename... Arguments>
[[gnu::target("avx2")]] auto run_avx2(Arguments... arguments) {
  return kLoop(arguments...);
}
template <auto kLoop, typename... Arguments>
[[gnu::target("arch=x86-64-v4")]] auto run_avx512(Arguments... arguments) {
  return kLoop(arguments...);
}
#endif

/// kLoop(arguments...) in the width in use. kLoop is a [[gnu::always_inline]] function, in a source
/// compiled with SHARDBENCH_EXACT_FLAGS (no contraction into FMA), so that every width gives the
/// same bits.
template <auto kLoop, typename... Arguments>
auto run_simd(Arguments... arguments) {
#if defined(SHARDBENCH_HAS_SIMD_WIDTHS)
  switch (simd_width()) {
    case SimdWidth::kPortable:
      break;
    case SimdWidth::kAvx2:
      return run_avx2<kLoop>(arguments...);
    case SimdWidth::kAvx512:
      return run_avx512<kLoop>(arguments...);
  }
#endif
  return run_portable<kLoop>(arguments...);
}

}  // namespace shardbench
