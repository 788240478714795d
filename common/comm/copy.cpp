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

// One line of 64 bytes, past the caches or into them: `to` starts on 64, so that none is written in
// parts.
template <bool kStreamed>
[[gnu::always_inline]] inline void sse_line(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i lanes[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                           _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
  for (int i = 0; i < 4; ++i) {
    kStreamed ? _mm_stream_si128(target + i, lanes[i]) : _mm_store_si128(target + i, lanes[i]);
  }
}
template <bool kStreamed>
[[gnu::always_inline, gnu::target("avx")]] inline void avx_line(std::byte* to,
                                                                const std::byte* from) {
  const auto* source = reinterpret_cast<const __m256i*>(from);
  auto* target = reinterpret_cast<__m256i*>(to);
  const __m256i lanes[] = {_mm256_loadu_si256(source), _mm256_loadu_si256(source + 1)};
  for (int i = 0; i < 2; ++i) {
    kStreamed ? _mm256_stream_si256(target + i, lanes[i])
              : _mm256_store_si256(target + i, lanes[i]);
  }
}
template <bool kStreamed>
[[gnu::always_inline, gnu::target("avx512f")]] inline void avx512_line(std::byte* to,
                                                                       const std::byte* from) {
  const __m512i line = _mm512_loadu_si512(from);
  kStreamed ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line)
            : _mm512_store_si512(to, line);
}

/// kStreams x `stream` bytes, `stream` a multiple of kRun.
using StreamCopy = void (*)(std::byte* to, const std::byte* from, std::size_t stream);

// A macro: the instruction set is that of the function whose body this is.
#define SHARDBENCH_STREAM_COPY(name, line, ...)                                     \
  template <bool kStreamed>                                                         \
  __VA_ARGS__ void name(std::byte* to, const std::byte* from, std::size_t stream) { \
    for (std::size_t at = 0; at < stream; at += kRun) {                             \
      for (std::size_t s = 0; s < kStreams; ++s) {                                  \
        const std::size_t begin = s * stream + at;                                  \
        for (std::size_t i = begin; i < begin + kRun; i += kLine) {                 \
          line<kStreamed>(to + i, from + i);                                        \
        }                                                                           \
      }                                                                             \
    }                                                                               \
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
}

template <bool kStreamed>
void copy_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (simd_width()) {
    case SimdWidth::kPortable:
      return copy_with<copy_sse<kStreamed>>(to, from, bytes);
    case SimdWidth::kAvx2:
      return copy_with<copy_avx<kStreamed>>(to, from, bytes);
    case SimdWidth::kAvx512:
      return copy_with<copy_avx512<kStreamed>>(to, from, bytes);
  }
}

}  // namespace

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy_lines<true>(to, from, bytes);
  // Such stores are weakly ordered; peers are told that the bytes are there by an ordinary one.
  _mm_sfence();
}

void copy_from_memory(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy_lines<false>(to, from, bytes);
}

#else

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void copy_from_memory(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace shardbench::comm
