#include "common/data/synthetic.h"

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/data/mix.h"

namespace shardbench::data {

SyntheticSource::SyntheticSource(std::uint64_t seed, std::int64_t vocab)
    : seed_(seed), vocab_(vocab), stride_(0) {
  if (vocab < 1) {
    throw UserError::format("synthetic data needs a vocabulary of at least 1, not {}", vocab);
  }
  // Never 0 (all tokens of a window would be equal) unless there is only one token.
  if (vocab > 1) {
    stride_ = 1 + static_cast<std::int64_t>(mix(seed) % static_cast<std::uint64_t>(vocab - 1));
  }
}

std::string SyntheticSource::describe() const {
  return fmt::format("synthetic, {} token values, seed {}", vocab_, seed_);
}

std::int64_t SyntheticSource::windows(Split split, std::int64_t /*seq*/) const {
  return split == Split::kTraining ? kTrainingWindows : kHeldOutWindows;
}

void SyntheticSource::read(Split split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
                           std::int64_t* targets) const {
  SHARDBENCH_CHECK(index >= 0 && index < windows(split, seq), "window {}", index);
  const std::uint64_t split_key = mix(seed_, static_cast<std::uint64_t>(split) + 1);
  const std::uint64_t window_key = mix(split_key, static_cast<std::uint64_t>(index));
  std::int64_t current = token(window_key, 0);
  for (std::int64_t t = 0; t < seq; ++t) {
    tokens[t] = current;
    current = token(window_key, t + 1);
    targets[t] = current;
  }
}

std::int64_t SyntheticSource::token(std::uint64_t window_key, std::int64_t position) const {
  const auto vocab = static_cast<std::uint64_t>(vocab_);
  const std::uint64_t random = mix(window_key, static_cast<std::uint64_t>(position) + 1);
  if (random % 8 == 0) return static_cast<std::int64_t>((random >> 3) % vocab);
  const std::uint64_t start = window_key % vocab;
  // Reduced before multiplying: no overflow for any vocabulary below 2^31.
  const std::uint64_t steps = static_cast<std::uint64_t>(position) % vocab;
  return static_cast<std::int64_t>((start + steps * static_cast<std::uint64_t>(stride_)) % vocab);
}

void SyntheticSource::require_windows(std::int64_t seq, bool /*held_out*/) const {
  if (seq < 1) throw UserError::format("--seq {} is not valid; give at least 1", seq);
}

}  // namespace shardbench::data
