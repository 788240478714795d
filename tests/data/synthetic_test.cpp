#include "common/data/synthetic.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/core/error.h"

namespace shardbench::data {
namespace {

using Tokens = std::vector<std::int64_t>;

struct Window {
  Tokens tokens;
  Tokens targets;
};

Window read(const TokenSource& source, Split split, std::int64_t index, std::int64_t seq) {
  Window window{Tokens(static_cast<std::size_t>(seq)), Tokens(static_cast<std::size_t>(seq))};
  source.read(split, index, seq, window.tokens.data(), window.targets.data());
  return window;
}

TEST(Synthetic, TargetsAreTheNextTokens) {
  const SyntheticSource source(7, 50);
  for (const std::int64_t seq : {1, 2, 17}) {
    const Window window = read(source, Split::kTraining, 3, seq);
    for (std::size_t t = 0; t + 1 < window.tokens.size(); ++t) {
      EXPECT_EQ(window.targets[t], window.tokens[t + 1]);
    }
  }
}

TEST(Synthetic, AFunctionOfSeedWindowAndPosition) {
  const SyntheticSource source(7, 50);
  const Tokens tokens = read(source, Split::kTraining, 3, 32).tokens;
  EXPECT_EQ(read(SyntheticSource(7, 50), Split::kTraining, 3, 32).tokens, tokens);
  const Tokens longer = read(source, Split::kTraining, 3, 64).tokens;
  EXPECT_EQ(Tokens(longer.begin(), longer.begin() + 32), tokens);
  EXPECT_NE(read(source, Split::kTraining, 4, 32).tokens, tokens);
  EXPECT_NE(read(source, Split::kHeldOut, 3, 32).tokens, tokens);
  EXPECT_NE(read(SyntheticSource(8, 50), Split::kTraining, 3, 32).tokens, tokens);
}

TEST(Synthetic, StaysInTheVocabulary) {
  for (const std::int64_t vocab : {1, 2, 3, 256, 50257}) {
    const SyntheticSource source(1, vocab);
    for (std::int64_t window = 0; window < 50; ++window) {
      for (const std::int64_t token : read(source, Split::kTraining, window, 40).tokens) {
        ASSERT_GE(token, 0);
        ASSERT_LT(token, vocab);
      }
    }
  }
}

TEST(Synthetic, MostNextTokensCanBeLearned) {
  const SyntheticSource source(1, 256);
  std::map<std::int64_t, int> steps;  // next minus this, modulo the vocabulary
  int all = 0;
  for (std::int64_t index = 0; index < 100; ++index) {
    const Window window = read(source, Split::kHeldOut, index, 64);
    for (std::size_t t = 0; t < window.tokens.size(); ++t, ++all) {
      ++steps[(window.targets[t] - window.tokens[t] + 256) % 256];
    }
  }
  int most = 0;
  for (const auto& [step, count] : steps) most = std::max(most, count);
  EXPECT_GT(most, all * 65 / 100);  // (7/8)^2 = 77 % follow the stride
  EXPECT_LT(most, all * 90 / 100);
}

TEST(Synthetic, RefusesNonsense) {
  EXPECT_THROW(SyntheticSource(1, 0), UserError);
  EXPECT_THROW(SyntheticSource(1, 4).require_windows(0, false), UserError);
  EXPECT_NO_THROW(SyntheticSource(1, 4).require_windows(1 << 20, true));
  EXPECT_THROW(read(SyntheticSource(1, 4), Split::kHeldOut, SyntheticSource::kHeldOutWindows, 4),
               InvariantError);
  EXPECT_FALSE(SyntheticSource(1, 4).bigram_baseline().has_value());
}

}  // namespace
}  // namespace shardbench::data
