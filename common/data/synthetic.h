#pragma once

#include "common/data/token_source.h"

namespace shardbench::data {

/// Tokens as a function of (seed, window, position) only; nothing is stored. A window starts at a
/// random token and goes on by a fixed stride modulo the vocabulary, and one token in eight is
/// random instead: most of the next token can be learned, some of it cannot.
class SyntheticSource final : public TokenSource {
 public:
  static constexpr std::int64_t kTrainingWindows = std::int64_t{1} << 20;
  static constexpr std::int64_t kHeldOutWindows = std::int64_t{1} << 7;

  /// Throws UserError unless vocab >= 1.
  SyntheticSource(std::uint64_t seed, std::int64_t vocab);

  std::string describe() const override;
  std::int64_t vocab() const override { return vocab_; }
  std::int64_t windows(Split split, std::int64_t seq) const override;
  void read(Split split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
            std::int64_t* targets) const override;
  void require_windows(std::int64_t seq, bool held_out) const override;

 private:
  std::int64_t token(std::uint64_t window_key, std::int64_t position) const;
  std::uint64_t seed_;
  std::int64_t vocab_;
  std::int64_t stride_;
};

}  // namespace shardbench::data
