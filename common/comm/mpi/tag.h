#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/comm/kind.h"

namespace shardbench::comm {

/// How a message's tag says which call it belongs to: its number (the last bits), its kind, and a
/// few bits of its fingerprint, so that ranks whose calls differ never take each other's messages.
/// MPI grants 15 bits at least; Open MPI has 31.
class TagLayout {
 public:
  explicit TagLayout(int max_tag) {
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(max_tag) + 1)) - 1;
    hash_bits_ = std::clamp(bits - kSequenceBits - kKindBits - 1, 0, 16);
  }

  /// Calls that may be open at once, so that numbers stay apart.
  static constexpr std::int64_t kMostOpen = 128;

  /// `is_result`: the second message between two ranks in one call.
  int make(std::int64_t sequence, CollectiveKind kind, std::uint64_t fingerprint,
           bool is_result) const {
    const auto number = static_cast<std::uint32_t>(sequence % (1 << kSequenceBits));
    const auto hash = static_cast<std::uint32_t>(fingerprint % (1u << hash_bits_));
    std::uint32_t tag = number;
    tag = tag << hash_bits_ | hash;
    tag = tag << kKindBits | static_cast<std::uint32_t>(kind);
    tag = tag << 1 | static_cast<std::uint32_t>(is_result);
    return static_cast<int>(tag);
  }

  static CollectiveKind kind_of(int tag) {
    return static_cast<CollectiveKind>(tag >> 1 & ((1 << kKindBits) - 1));
  }
  /// Whether both have the same number but belong to different calls.
  bool contradicts(int tag, int other) const {
    const int call = 1 + kKindBits + hash_bits_;
    return tag >> call == other >> call && tag >> 1 != other >> 1;
  }

 private:
  static constexpr int kSequenceBits = 8;
  static constexpr int kKindBits = 3;
  int hash_bits_ = 0;
};

}  // namespace shardbench::comm
