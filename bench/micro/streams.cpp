#include "bench/micro/streams.h"

#include <cstring>

#include "common/core/error.h"
#include "common/core/simd.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardbench::micro {
namespace {

constexpr std::int64_t kVector = 4;  // floats of one streaming store: 16 bytes

/// The sum of the sources at one place.
template <int kSources>
[[gnu::always_inline]] inline float sum_at(const float* const* from, std::int64_t i) {
  float sum = from[0][i] + from[1][i];
  if constexpr (kSources > 2) sum += from[2][i];
  if constexpr (kSources > 3) sum += from[3][i];
  return sum;
}

template <int kSources, int kTargets>
[[gnu::always_inline]] inline void cached(float* const* to, const float* const* from,
                                          std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = sum_at<kSources>(from, i);
    for (int t = 0; t < kTargets; ++t) to[t][i] = sum;
  }
}

template <int kSources, int kTargets>
inline void streamed(float* const* to, const float* const* from, std::int64_t count) {
#if defined(__SSE2__)
  std::int64_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    __m128 sum = _mm_add_ps(_mm_load_ps(from[0] + i), _mm_load_ps(from[1] + i));
    if constexpr (kSources > 2) sum = _mm_add_ps(sum, _mm_load_ps(from[2] + i));
    if constexpr (kSources > 3) sum = _mm_add_ps(sum, _mm_load_ps(from[3] + i));
    for (int t = 0; t < kTargets; ++t) _mm_stream_ps(to[t] + i, sum);
  }
  for (; i < count; ++i) {
    for (int t = 0; t < kTargets; ++t) to[t][i] = sum_at<kSources>(from, i);
  }
  _mm_sfence();
#else
  cached<kSources, kTargets>(to, from, count);
#endif
}

template <int kSources, int kTargets>
void cached_simd(float* const* to, const float* const* from, std::int64_t count) {
  run_simd<cached<kSources, kTargets>>(to, from, count);
}

}  // namespace

void bare_copy(float* to, const float* from, std::int64_t count, Stores stores) {
#if defined(__SSE2__)
  if (stores == Stores::kStreamed) {
    std::int64_t i = 0;
    for (; i + kVector <= count; i += kVector) _mm_stream_ps(to + i, _mm_load_ps(from + i));
    for (; i < count; ++i) to[i] = from[i];
    _mm_sfence();
    return;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

void bare_sum(std::span<float* const> to, std::span<const float* const> from, std::int64_t count,
              Stores stores) {
  using Kernel = void (*)(float* const*, const float* const*, std::int64_t);
  struct Choice {
    std::size_t sources, targets;
    Kernel cached, streamed;
  };
  static constexpr Choice kChoices[] = {
      {2, 1, cached_simd<2, 1>, streamed<2, 1>}, {2, 2, cached_simd<2, 2>, streamed<2, 2>},
      {3, 1, cached_simd<3, 1>, streamed<3, 1>}, {3, 3, cached_simd<3, 3>, streamed<3, 3>},
      {4, 1, cached_simd<4, 1>, streamed<4, 1>}, {4, 4, cached_simd<4, 4>, streamed<4, 4>}};
  for (const Choice& choice : kChoices) {
    if (choice.sources != from.size() || choice.targets != to.size()) continue;
    (stores == Stores::kStreamed ? choice.streamed : choice.cached)(to.data(), from.data(), count);
    return;
  }
  SHARDBENCH_CHECK(false, "no bare sum of {} sources to {} targets", from.size(), to.size());
}

}  // namespace shardbench::micro
