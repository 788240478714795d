#include "common/comm/copy.h"

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardbench::comm {

#if defined(__SSE2__)

namespace {

constexpr std::size_t kLine = 64;
/// Copied from one place before the next one's turn.
constexpr std::size_t kRun = 512;
/// Hardware prefetch stops at pages, so one stream of reads waits at each; several overlap.
constexpr std::size_t kStreams = 4;

/// `to` on 64 bytes, `bytes` a multiple of 64: whole lines, so that none is written in parts.
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
}

}  // namespace

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;

  const std::size_t stream = bytes / kStreams / kRun * kRun;
  for (std::size_t at = 0; at < stream; at += kRun) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      stream_lines(to + s * stream + at, from + s * stream + at, kRun);
    }
  }
  const std::size_t done = stream * kStreams;
  std::memcpy(to + done, from + done, bytes - done);
  // Such stores are weakly ordered; peers are told that the bytes are there by an ordinary one.
  _mm_sfence();
}

#else

void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace shardbench::comm
