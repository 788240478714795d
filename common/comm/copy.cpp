#include "common/comm/copy.h"

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>

#include "common/core/simd.h"
#endif

namespace shardbench::comm {

#if defined(__x86_64__)

namespace {

constexpr std::size_t kLine = 64;
/// Copied from one place before the next one's turn.
constexpr std::size_t kRun = 512;
/// Hardware prefetch stops at pages, so one stream of reads waits at each; several overlap.
constexpr std::size_t kStreams = 4;

// One line of 64 bytes: `to` starts on 64, so that none is written in parts.
[[gnu::always_inline]] inline void sse_line(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}
[[gnu::always_inline, gnu::target("avx")]] inline void avx_line(std::byte* to,
                                                                const std::byte* from) {
  const auto* source = reinterpret_cast<const __m256i*>(from);
  auto* target = reinterpret_cast<__m256i*>(to);
  const __m256i a = _mm256_loadu_si256(source);
  const __m256i b = _mm256_loadu_si256(source + 1);
  _mm256_stream_si256(target, a);
  _mm256_stream_si256(target + 1, b);
}
[[gnu::always_inline, gnu::target("avx512f")]] inline void avx512_line(std::byte* to,
                                                                       const std::byte* from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

/// kStreams x `stream` bytes, `stream` a multiple of kRun.
using StreamCopy = void (*)(std::byte* to, const std::byte* from, std::size_t stream);

// A macro: the instruction set is that of the function whose body this is.
#define SHARDBENCH_STREAM_COPY(name, line, ...)                                           \
  __VA_ARGS__ void name(std::byte* to, const std::byte* from, std::size_t stream) {       \
    for (std::size_t at = 0; at < stream; at += kRun) {                                   \
      for (std::size_t s = 0; s < kStreams; ++s) {                                        \
        const std::size_t begin = s * stream + at;                                        \
        for (std::size_t i = begin; i < begin + kRun; i += kLine) line(to + i, from + i); \
      }                                                                                   \
    }                                                                                     \
  }
SHARDBENCH_STREAM_COPY(copy_sse, sse_line)
SHARDBENCH_STREAM_COPY(copy_avx, avx_line, [[gnu::target("avx")]])
SHARDBENCH_STREAM_COPY(copy_avx512, avx512_line, [[gnu::target("avx512f")]])
#undef SHARDBENCH_STREAM_COPY

/// What does not fill lines at either end is copied in the ordinary way.
template <StreamCopy kCopy>
void copy_with(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;

  const std::size_t stream = bytes / kStreams / kRun * kRun;
  kCopy(to, from, stream);
  const std::size_t done = stream * kStreams;
  std::memcpy(to + done, from + done, bytes - done);
  // Such stores are weakly ordered; peers are told that the bytes are there by an ordinary one.
  _mm_sfence();
}

}  // namespace

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (simd_width()) {
    case SimdWidth::kPortable:
      return copy_with<copy_sse>(to, from, bytes);
    case SimdWidth::kAvx2:
      return copy_with<copy_avx>(to, from, bytes);
    case SimdWidth::kAvx512:
      return copy_with<copy_avx512>(to, from, bytes);
  }
}

#else

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace shardbench::comm
