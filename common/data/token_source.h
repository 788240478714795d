#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace shardbench::data {

/// Held-out windows are never trained on.
enum class Split : std::uint8_t { kTraining, kHeldOut };

/// Token sequences to train on, cut into windows. A window of length `seq` is `seq` tokens and the
/// `seq` targets that follow them, one position later. Immutable; any thread may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// One line for people: "text, 5,460,231 bytes, /data/shakespeare.txt".
  virtual std::string describe() const = 0;
  /// Every token is in [0, vocab()).
  virtual std::int64_t vocab() const = 0;
  /// Windows of this length; they do not overlap but for the last target. May be 0.
  virtual std::int64_t windows(Split split, std::int64_t seq) const = 0;
  /// Writes window `index`: `seq` tokens and `seq` targets, targets[t] == tokens[t + 1].
  virtual void read(Split split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
                    std::int64_t* targets) const = 0;

  /// Nats per token that a bigram model (add-one smoothing), fitted on the training part, needs on
  /// the held-out part: what a model has to beat. Empty where it means nothing.
  virtual std::optional<double> bigram_baseline() const { return std::nullopt; }

  /// Throws UserError, saying how much is needed and how much there is, unless there is at least
  /// one training window of this length (and one held-out window, if wanted).
  virtual void require_windows(std::int64_t seq, bool held_out) const = 0;
};

/// Opens what `--data` names: "synthetic" (tokens drawn from `seed`, values below `vocab`), a text
/// file, or a folder with *.txt files. Throws UserError: no such path, unreadable, no *.txt in the
/// folder, byte values that a model with `vocab` token values cannot take.
std::unique_ptr<TokenSource> open_source(const std::string& data, std::uint64_t seed,
                                         std::int64_t vocab);

}  // namespace shardbench::data
