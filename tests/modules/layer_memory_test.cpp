#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/memory/allocator.h"
#include "common/memory/tracker.h"
#include "common/modules/layers/attention.h"
#include "common/modules/layers/dropout.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/llama_block.h"
#include "common/modules/layers/mlp.h"
#include "common/modules/layers/transformer_block.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"

namespace shardbench {
namespace {

using namespace shardbench::testing;  // NOLINT

/// All tests of this program run on the tracking allocator, with freed memory turned into NaN.
class TrackedMemory : public ::testing::Environment {
 public:
  void SetUp() override {
    memory::install_allocator();
    memory::poison_freed(true);
  }
};
const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new TrackedMemory);

std::int64_t live_activation_bytes() {
  return memory::tracker().live()[static_cast<std::size_t>(memory::Category::kActivation)];
}

constexpr std::int64_t kBatch = 2, kLength = 5, kWidth = 12, kHeads = 3;
constexpr std::int64_t kTokens = kBatch * kLength;

/// fp32 elements that forward leaves alive as activations, its output included.
template <typename M, typename... Args>
std::int64_t kept_elements(bool with_grad, Args&&... args) {
  Model model("m", std::make_unique<M>(std::forward<Args>(args)...));
  PlainHooks hooks(model);
  const at::Tensor x = random({kBatch, kLength, kWidth}, at::kFloat).requires_grad_(true);
  at::AutoGradMode mode(with_grad);
  const std::int64_t before = live_activation_bytes();
  const at::Tensor output = model(x);
  const std::int64_t bytes = live_activation_bytes() - before;
  for (Parameter* p : model.parameters()) p->forget_uses();
  EXPECT_EQ(bytes % 4, 0);
  return bytes / 4;
}

TEST(LayerMemory, ForwardKeepsNoMoreThanBackwardNeeds) {
  constexpr std::int64_t out = kTokens * kWidth;
  // The input of the layer itself is not counted here: it belongs to whoever made it.
  EXPECT_EQ(kept_elements<Linear>(true, kWidth, 7), kTokens * 7);
  EXPECT_EQ(kept_elements<LayerNorm>(true, kWidth), out + 2 * kTokens);
  EXPECT_EQ(kept_elements<MLP>(true, kWidth, 0.02), out + 2 * 4 * out);
  // qkv, the attention's output with one number per query and head, and proj's output.
  const std::int64_t attention = 3 * out + out + kTokens * kHeads + out;
  EXPECT_EQ(kept_elements<CausalSelfAttention>(true, kWidth, kHeads, 0.02), attention);
  // Two norms more; the residual sums live in the branches' outputs.
  EXPECT_EQ(kept_elements<TransformerBlock>(true, kWidth, kHeads, 0.02),
            attention + 9 * out + 2 * (out + 2 * kTokens));
}

TEST(LayerMemory, LlamaKeepsNoMoreThanBackwardNeeds) {
  constexpr std::int64_t out = kTokens * kWidth, kInner = 7, kKvHeads = 1, kSize = kWidth / kHeads;
  const LlamaSizes sizes = {
      .width = kWidth, .heads = kHeads, .kv_heads = kKvHeads, .feed_forward = kInner};
  const auto rotary = std::make_shared<RotaryTable>(kSize, 10000.0);
  EXPECT_EQ(kept_elements<RMSNorm>(true, kWidth), out + kTokens);
  // gate, up, their product and down's output.
  const std::int64_t mlp = 3 * kTokens * kInner + out;
  EXPECT_EQ(kept_elements<SwiGLU>(true, kWidth, kInner, 0.02), mlp);
  // q, k and v, turned where they are and never repeated; the output with one number per query and
  // head; o's output.
  const std::int64_t attention =
      out + 2 * kTokens * kKvHeads * kSize + out + kTokens * kHeads + out;
  EXPECT_EQ(kept_elements<GroupedQueryAttention>(true, sizes, rotary), attention);
  EXPECT_EQ(kept_elements<LlamaBlock>(true, sizes, rotary), attention + mlp + 2 * (out + kTokens));
  EXPECT_EQ(kept_elements<LlamaBlock>(false, sizes, rotary), out);
}

TEST(LayerMemory, TheRotaryTableIsMadeOncePerLength) {
  RotaryTable rotary(4, 10000.0);
  const auto other = [] {
    return memory::tracker().live()[static_cast<std::size_t>(memory::Category::kOther)];
  };
  const std::int64_t before = other();
  const void* first = rotary.at_least(5).const_data_ptr();
  EXPECT_EQ(other() - before, 5 * 4 * 4);
  EXPECT_EQ(rotary.at_least(3).const_data_ptr(), first);
  EXPECT_EQ(rotary.at_least(5).const_data_ptr(), first);
  EXPECT_EQ(rotary.at_least(9).size(0), 9);
  EXPECT_EQ(other() - before, 9 * 4 * 4);
}

TEST(LayerMemory, WithoutGradientsOnlyTheOutputStays) {
  constexpr std::int64_t out = kTokens * kWidth;
  EXPECT_EQ(kept_elements<Linear>(false, kWidth, 7), kTokens * 7);
  EXPECT_EQ(kept_elements<TransformerBlock>(false, kWidth, kHeads, 0.02), out);
}

TEST(LayerMemory, DropoutKeepsItsOutputAloneAndNothingAtZero) {
  EXPECT_EQ(kept_elements<Dropout>(true, 0.5), kTokens * kWidth);
  EXPECT_EQ(kept_elements<Dropout>(true, 0.0), 0);
}

TEST(LayerMemory, BackwardFreesWhatForwardKept) {
  const std::int64_t before = live_activation_bytes();
  {
    Model model("m", std::make_unique<TransformerBlock>(kWidth, kHeads, 0.02));
    PlainHooks hooks(model);
    const at::Tensor x = random({kBatch, kLength, kWidth}, at::kFloat).requires_grad_(true);
    const at::Tensor output = model(x);
    EXPECT_GT(live_activation_bytes(), before + 4 * kTokens * kWidth);
    output.sum().backward();
    EXPECT_EQ(live_activation_bytes(), before + 4 * kTokens * kWidth);  // the output
  }
  EXPECT_EQ(live_activation_bytes(), before);
}

TEST(LayerMemory, CrossEntropyNeedsOneVocabularyBuffer) {
  constexpr std::int64_t kRows = 64, kClasses = 1000, kBufferBytes = 4 * kRows * kClasses;
  at::Tensor logits = random({kRows, kClasses}, at::kFloat).requires_grad_(true);
  const at::Tensor targets = random_indices(kClasses, {kRows});
  memory::tracker().reset_peak();
  const std::int64_t before = memory::total(memory::tracker().live());
  functional::cross_entropy(logits, targets).backward();
  EXPECT_LT(memory::tracker().peak() - before, kBufferBytes / 4);
  EXPECT_EQ(logits.grad().sizes(), logits.sizes());
}

}  // namespace
}  // namespace shardbench
