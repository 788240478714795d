#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "common/memory/allocator.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/attention.h"
#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/conv.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/llama_block.h"
#include "common/modules/layers/mlp.h"
#include "common/modules/layers/transformer_block.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"
#include "tests/support/reference_conv.h"
#include "tests/support/reference_llama.h"

namespace shardbench {
namespace {

using namespace shardbench::testing;  // NOLINT
/// A layer beside the same thing in plain ATen calls.
struct Case {
  std::string name;
  std::function<std::unique_ptr<Module>()> make;
  at::Tensor input;
  std::function<at::Tensor(const at::Tensor&, Weights&)> reference;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

at::Tensor linear_of(const at::Tensor& x, Weights& w, const std::string& at_path) {
  return at::matmul(x, w[at_path + "weight"].t()) + w[at_path + "bias"];
}
at::Tensor norm_of(const at::Tensor& x, Weights& w, const std::string& at_path) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * w[at_path + "weight"] +
         w[at_path + "bias"];
}
at::Tensor attention_of(const at::Tensor& x, Weights& w, const std::string& at_path,
                        std::int64_t heads) {
  const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto parts = linear_of(x, w, at_path + "qkv.").split(width, 2);
  const auto by_head = [&](const at::Tensor& t) {
    return t.reshape({batch, length, heads, width / heads}).permute({0, 2, 1, 3});
  };
  const at::Tensor scores = at::matmul(by_head(parts[0]), by_head(parts[1]).transpose(2, 3)) /
                            std::sqrt(static_cast<double>(width / heads));
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor weights =
      at::softmax(scores.masked_fill(later, -std::numeric_limits<double>::infinity()), -1);
  const at::Tensor mixed = at::matmul(weights, by_head(parts[2])).permute({0, 2, 1, 3});
  return linear_of(mixed.reshape({batch, length, width}), w, at_path + "proj.");
}
at::Tensor mlp_of(const at::Tensor& x, Weights& w, const std::string& at_path) {
  return linear_of(at::gelu(linear_of(x, w, at_path + "fc."), "tanh"), w, at_path + "proj.");
}

/// Heads of queries and of keys differ, widths divide by little.
LlamaSizes llama_sizes(std::int64_t heads, std::int64_t kv_heads, std::int64_t size, bool bias) {
  return {.width = heads * size,
          .heads = heads,
          .kv_heads = kv_heads,
          .feed_forward = 13,
          .qkv_bias = bias};
}
template <typename M>
auto make_llama(const LlamaSizes& sizes) {
  return [sizes] {
    return std::make_unique<M>(sizes,
                               std::make_shared<RotaryTable>(sizes.width / sizes.heads, 10000.0));
  };
}

void add_llama_cases(std::vector<Case>& cases) {
  const auto x = [](at::IntArrayRef sizes) { return random(sizes, at::kFloat); };
  cases.push_back({"rms_norm", [] { return std::make_unique<RMSNorm>(11); }, x({2, 3, 11}),
                   [](const at::Tensor& in, Weights& w) { return rms_norm_of(in, w, ""); }});
  cases.push_back({"swiglu", [] { return std::make_unique<SwiGLU>(6, 11, 0.02); }, x({2, 3, 6}),
                   [](const at::Tensor& in, Weights& w) { return swiglu_of(in, w, ""); }});
  cases.push_back(
      {"grouped_attention", make_llama<GroupedQueryAttention>(llama_sizes(6, 2, 4, false)),
       x({2, 7, 24}),
       [](const at::Tensor& in, Weights& w) { return llama_attention_of(in, w, "", 6, 2); }});
  cases.push_back(
      {"grouped_attention_one_key_head_and_biases",
       make_llama<GroupedQueryAttention>(llama_sizes(3, 1, 2, true)), x({3, 5, 6}),
       [](const at::Tensor& in, Weights& w) { return llama_attention_of(in, w, "", 3, 1); }});
  cases.push_back(
      {"llama_block", make_llama<LlamaBlock>(llama_sizes(2, 2, 4, false)), x({2, 5, 8}),
       [](const at::Tensor& in, Weights& w) { return llama_block_of(in, w, "", 2, 2); }});
  cases.push_back(
      {"llama_block_grouped", make_llama<LlamaBlock>(llama_sizes(4, 2, 6, true)), x({3, 4, 24}),
       [](const at::Tensor& in, Weights& w) { return llama_block_of(in, w, "", 4, 2); }});
}

void add_conv_cases(std::vector<Case>& cases) {
  const auto x = [](at::IntArrayRef sizes) { return random(sizes, at::kFloat); };
  cases.push_back(
      {"conv1d", [] { return std::make_unique<Conv1d>(3, 5, ConvOptions{}); }, x({2, 3, 9}),
       [](const at::Tensor& in, Weights& w) { return conv_of(in, w["weight"], w["bias"], 1, 0); }});
  const ConvOptions strided = {.kernel = 3, .stride = 2, .padding = 1, .bias = true};
  cases.push_back(
      {"conv2d", [=] { return std::make_unique<Conv2d>(3, 4, strided); }, x({2, 3, 7, 6}),
       [](const at::Tensor& in, Weights& w) { return conv_of(in, w["weight"], w["bias"], 2, 1); }});
  const ConvOptions plain = {.kernel = 3, .stride = 1, .padding = 1, .bias = false};
  cases.push_back(
      {"conv2d_one_channel", [=] { return std::make_unique<Conv2d>(1, 1, plain); }, x({1, 1, 5, 4}),
       [](const at::Tensor& in, Weights& w) { return conv_of(in, w["weight"], {}, 1, 1); }});
  cases.push_back(
      {"conv3d", [=] { return std::make_unique<Conv3d>(2, 3, plain); }, x({2, 2, 4, 3, 5}),
       [](const at::Tensor& in, Weights& w) { return conv_of(in, w["weight"], {}, 1, 1); }});
  cases.push_back(
      {"batch_norm", [] { return std::make_unique<BatchNorm>(5); }, x({3, 5, 4, 2}),
       [](const at::Tensor& in, Weights& w) { return batch_norm_of(in, w["weight"], w["bias"]); }});
}

std::vector<Case> make_cases() {
  at::manual_seed(12);
  std::vector<Case> cases;
  const auto add = [&](std::string name, auto make, at::Tensor input, auto reference) {
    cases.push_back({std::move(name), make, std::move(input), reference});
  };
  const auto x = [](at::IntArrayRef sizes) { return random(sizes, at::kFloat); };
  add(
      "linear", [] { return std::make_unique<Linear>(5, 3); }, x({2, 3, 5}),
      [](const at::Tensor& in, Weights& w) { return linear_of(in, w, ""); });
  add(
      "linear_one", [] { return std::make_unique<Linear>(1, 1); }, x({1, 1, 1}),
      [](const at::Tensor& in, Weights& w) { return linear_of(in, w, ""); });
  add(
      "linear_without_bias", [] { return std::make_unique<Linear>(7, 13, false); }, x({4, 7}),
      [](const at::Tensor& in, Weights& w) { return at::matmul(in, w["weight"].t()); });
  add(
      "layer_norm", [] { return std::make_unique<LayerNorm>(11); }, x({2, 3, 11}),
      [](const at::Tensor& in, Weights& w) { return norm_of(in, w, ""); });
  add(
      "embedding", [] { return std::make_unique<Embedding>(9, 5, Init::normal(1)); },
      random_indices(9, {3, 4}),
      [](const at::Tensor& in, Weights& w) { return at::embedding(w["weight"], in); });
  add(
      "attention", [] { return std::make_unique<CausalSelfAttention>(15, 3, 0.02); }, x({2, 7, 15}),
      [](const at::Tensor& in, Weights& w) { return attention_of(in, w, "", 3); });
  add(
      "attention_one_token", [] { return std::make_unique<CausalSelfAttention>(6, 2, 0.02); },
      x({1, 1, 6}), [](const at::Tensor& in, Weights& w) { return attention_of(in, w, "", 2); });
  add(
      "mlp", [] { return std::make_unique<MLP>(7, 0.02); }, x({3, 2, 7}),
      [](const at::Tensor& in, Weights& w) { return mlp_of(in, w, ""); });
  add(
      "block", [] { return std::make_unique<TransformerBlock>(10, 2, 0.02); }, x({2, 5, 10}),
      [](const at::Tensor& in, Weights& w) {
        const at::Tensor mid = in + attention_of(norm_of(in, w, "ln_1."), w, "attn.", 2);
        return mid + mlp_of(norm_of(mid, w, "ln_2."), w, "mlp.");
      });
  add_llama_cases(cases);
  add_conv_cases(cases);
  return cases;
}

class Layers : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(30);
    model_ = std::make_unique<Model>(GetParam().name, GetParam().make());
    input_ = GetParam().input.clone();
    if (input_.is_floating_point()) input_.requires_grad_(true);
  }
  void attach() {
    hooks_ = std::make_unique<PlainHooks>(*model_);
    hooks_->randomize(0.5);
  }
  /// Expected output and gradients in fp64 for the output gradient `grad`.
  void reference(const at::Tensor& grad) {
    expected_.clear();
    for (Parameter* p : model_->parameters()) {
      expected_[p->name()] = hooks_->value(p->name()).to(at::kDouble).requires_grad_(true);
    }
    expected_input_ = input_.detach().clone();
    if (input_.is_floating_point()) {
      expected_input_ = expected_input_.to(at::kDouble).requires_grad_(true);
    }
    expected_output_ = GetParam().reference(expected_input_, expected_);
    expected_output_.backward(grad.to(at::kDouble));
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<PlainHooks> hooks_;
  at::Tensor input_;
  Weights expected_;
  at::Tensor expected_input_, expected_output_;
};

TEST_P(Layers, OutputAndGradientsEqualPlainAten) {
  attach();
  const at::Tensor output = (*model_)(input_);
  const at::Tensor grad = at::randn_like(output);
  reference(grad);
  EXPECT_TRUE(close_to(output, expected_output_, 3e-6));
  output.backward(grad);
  for (Parameter* p : model_->parameters()) {
    EXPECT_TRUE(close_to(hooks_->gradient(p->name()), expected_[p->name()].grad(), 1e-5))
        << p->name();
    EXPECT_EQ(hooks_->ready(p->name()), 1) << p->name();
    EXPECT_EQ(p->pending_uses(), 0) << p->name();
  }
  if (input_.requires_grad()) {
    EXPECT_TRUE(close_to(input_.grad(), expected_input_.grad(), 1e-5));
  }
}

TEST_P(Layers, ASecondBackwardAddsUp) {
  attach();
  const at::Tensor first = (*model_)(input_);
  const at::Tensor grad = at::randn_like(first);
  first.backward(grad);
  Weights once;
  for (Parameter* p : model_->parameters()) {
    once[p->name()] = hooks_->gradient(p->name()).clone();
  }
  (*model_)(input_).backward(grad);
  for (Parameter* p : model_->parameters()) {
    EXPECT_TRUE(close_to(hooks_->gradient(p->name()), once[p->name()] * 2, 1e-6)) << p->name();
  }
}

TEST_P(Layers, AFrozenParameterChangesNothingElse) {
  const std::size_t count = model_->parameters().size();
  for (std::size_t frozen = 0; frozen < count; ++frozen) {
    for (std::size_t i = 0; i < count; ++i) {
      model_->set_requires_grad(*model_->parameters()[i], i != frozen);
    }
    attach();
    const at::Tensor output = (*model_)(input_);
    const at::Tensor grad = at::randn_like(output);
    reference(grad);
    if (output.requires_grad()) output.backward(grad);
    for (Parameter* p : model_->parameters()) {
      if (p->requires_grad()) {
        EXPECT_TRUE(close_to(hooks_->gradient(p->name()), expected_[p->name()].grad(), 1e-5));
      } else {
        EXPECT_EQ(hooks_->ready(p->name()), 0);
        EXPECT_TRUE(hooks_->gradient(p->name()).isnan().all().item<bool>());
      }
    }
    hooks_.reset();
  }
}

TEST_P(Layers, AnInputWithoutGradientIsLeftAlone) {
  attach();
  const at::Tensor plain = input_.detach();
  const at::Tensor output = (*model_)(plain);
  const at::Tensor grad = at::randn_like(output);
  reference(grad);
  output.backward(grad);
  EXPECT_FALSE(plain.grad().defined());
  for (Parameter* p : model_->parameters()) {
    EXPECT_TRUE(close_to(hooks_->gradient(p->name()), expected_[p->name()].grad(), 1e-5));
  }
}

TEST_P(Layers, FrozenAltogetherStillPassesTheGradientOn) {
  for (Parameter* p : model_->parameters()) model_->set_requires_grad(*p, false);
  attach();
  const at::Tensor output = (*model_)(input_);
  ASSERT_EQ(output.requires_grad(), input_.requires_grad());
  if (!output.requires_grad()) return;
  const at::Tensor grad = at::randn_like(output);
  reference(grad);
  output.backward(grad);
  EXPECT_TRUE(close_to(input_.grad(), expected_input_.grad(), 1e-5));
}

TEST_P(Layers, WithoutGradientsNothingIsRecorded) {
  attach();
  const at::Tensor with = (*model_)(input_);
  for (Parameter* p : model_->parameters()) p->forget_uses();
  at::NoGradGuard no_grad;
  const at::Tensor without = (*model_)(input_);
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(without.equal(with));
  for (Parameter* p : model_->parameters()) EXPECT_EQ(p->pending_uses(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Layers, ::testing::ValuesIn(make_cases()),
                         [](const auto& test) { return test.param.name; });

/// Applies one layer twice.
class Twice : public Module {
 public:
  Twice() : inner_(&add_child<Linear>("inner", 4, 4)) {}
  std::string_view class_name() const override { return "Twice"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (*inner_)(functional::gelu((*inner_)(inputs[0])));
  }

 private:
  Linear* inner_;
};

TEST(LayerUses, TwoUsesAddUpAndAreReportedOnce) {
  at::manual_seed(1);
  Model model("twice", std::make_unique<Twice>());
  PlainHooks hooks(model);
  hooks.randomize(0.5);
  const at::Tensor x = random({3, 4}, at::kFloat);
  const at::Tensor output = model(x), grad = at::randn_like(output);
  output.backward(grad);
  Weights w;
  for (Parameter* p : model.parameters()) {
    w[p->name()] = hooks.value(p->name()).to(at::kDouble).requires_grad_(true);
  }
  const at::Tensor mid = at::gelu(linear_of(x.to(at::kDouble), w, "inner."), "tanh");
  linear_of(mid, w, "inner.").backward(grad.to(at::kDouble));
  for (Parameter* p : model.parameters()) {
    EXPECT_TRUE(close_to(hooks.gradient(p->name()), w[p->name()].grad(), 1e-5)) << p->name();
    EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
  }
}

/// A layer whose output gradient never arrives.
class Cut : public Module {
 public:
  Cut()
      : norm_(&add_child<LayerNorm>("norm", 4)),
        inner_(&add_child<Linear>("inner", 4, 4)),
        embedding_(&add_child<Embedding>("embedding", 3, 4, Init::normal(1))) {}
  std::string_view class_name() const override { return "Cut"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const at::Tensor looked_up = (*embedding_)(at::zeros({2}, at::kLong));
    const at::Tensor x =
        functional::residual_add(inputs[0], functional::gelu((*inner_)((*norm_)(looked_up))));
    return run_op(
        {x}, {}, [&] { return x.detach().clone(); },
        [](const Tensors&, const std::vector<bool>&) { return Tensors{at::Tensor()}; });
  }

 private:
  LayerNorm* norm_;
  Linear* inner_;
  Embedding* embedding_;
};

TEST(LayerUses, AGradientThatNeverArrivesCountsAsZero) {
  Model model("cut", std::make_unique<Cut>());
  PlainHooks hooks(model);
  model(random({2, 4}, at::kFloat)).sum().backward();
  for (Parameter* p : model.parameters()) {
    EXPECT_TRUE(hooks.gradient(p->name()).eq(0).all().item<bool>()) << p->name();
    EXPECT_EQ(hooks.ready(p->name()), 1) << p->name();
  }
}

}  // namespace
}  // namespace shardbench
