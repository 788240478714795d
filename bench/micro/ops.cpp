// Operations of the models, forward and backward, at the sizes of gpt2-nano and gpt2 (rows are
// batch x sequence) and of a small convnet.

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/micro/micro.h"
#include "bench/micro/ops_linear.h"
#include "common/ops/attention.h"
#include "common/ops/batch_norm.h"
#include "common/ops/conv.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/dropout.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/layer_norm.h"
#include "common/ops/pool.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rotary.h"
#include "common/ops/swiglu.h"

namespace shardbench::micro {

namespace {

using benchmark::State;

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat); }

/// `elements` of the input per second, whatever the operation does with them.
void loop(State& state, std::int64_t elements, const std::function<void()>& call) {
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  set_rate(state, "elements_per_second", static_cast<double>(elements));
}

void add(const std::string& name, const std::vector<std::string>& arguments,
         const std::vector<std::vector<std::int64_t>>& sizes, void (*run)(State&)) {
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), run);
  registered->ArgNames(arguments)->Unit(benchmark::kMicrosecond);
  for (const std::vector<std::int64_t>& size : sizes) registered->Args(size);
}

// --- Element-wise and norms: [rows, width]

void gelu(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)});
  loop(state, x.numel(), [&] { ops::gelu(x); });
}

void gelu_backward(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)}), grad = at::randn_like(x);
  loop(state, x.numel(), [&] { ops::gelu_backward(grad, x); });
}

void swiglu(State& state) {
  const at::Tensor gate = random({state.range(0), state.range(1)}), up = at::randn_like(gate);
  loop(state, gate.numel(), [&] { ops::swiglu(gate, up); });
}

void swiglu_backward(State& state) {
  const at::Tensor gate = random({state.range(0), state.range(1)});
  const at::Tensor up = at::randn_like(gate), grad = at::randn_like(gate);
  loop(state, gate.numel(), [&] { ops::swiglu_backward(grad, gate, up, true, true); });
}

void layer_norm(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)});
  const at::Tensor weight = random({state.range(1)}), bias = random({state.range(1)});
  loop(state, x.numel(), [&] { ops::layer_norm(x, weight, bias, 1e-5); });
}

void layer_norm_backward(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)}), grad = at::randn_like(x);
  const at::Tensor weight = random({state.range(1)}), bias = random({state.range(1)});
  const ops::LayerNormResult forward = ops::layer_norm(x, weight, bias, 1e-5);
  loop(state, x.numel(), [&] {
    ops::layer_norm_backward(grad, x, forward.mean, forward.rstd, weight, bias, true, true, true);
  });
}

void rms_norm(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)}), weight = random({state.range(1)});
  loop(state, x.numel(), [&] { ops::rms_norm(x, weight, 1e-5); });
}

void rms_norm_backward(State& state) {
  const at::Tensor x = random({state.range(0), state.range(1)}), grad = at::randn_like(x);
  const at::Tensor weight = random({state.range(1)}), target = at::empty_like(weight);
  const ops::RmsNormResult forward = ops::rms_norm(x, weight, 1e-5);
  loop(state, x.numel(), [&] {
    ops::rms_norm_weight_grad(grad, x, forward.rrms, target, false);
    ops::rms_norm_input_grad(grad, x, forward.rrms, weight);
  });
}

void dropout(State& state) {
  const at::Tensor x = random({1, state.range(0), state.range(1)});
  const auto id = ops::dropout_op_id("h.0.mlp.dropout");
  loop(state, x.numel(), [&] { ops::dropout(x, 0.1, {}, id); });
}

// --- Attention: [batch, sequence, heads, size of a head]

void attention(State& state) {
  const std::int64_t heads = state.range(2);
  const at::Tensor qkv = random({state.range(0), state.range(1), 3 * heads * state.range(3)});
  loop(state, qkv.numel(), [&] { ops::causal_attention(qkv, heads); });
}

void attention_backward(State& state) {
  const std::int64_t heads = state.range(2);
  const at::Tensor qkv = random({state.range(0), state.range(1), 3 * heads * state.range(3)});
  const ops::AttentionResult forward = ops::causal_attention(qkv, heads);
  const at::Tensor grad = at::randn_like(forward.out);
  loop(state, qkv.numel(), [&] { ops::causal_attention_backward(grad, qkv, forward, heads); });
}

void attention_plain(State& state) {
  const std::int64_t heads = state.range(2);
  const at::Tensor qkv = random({state.range(0), state.range(1), 3 * heads * state.range(3)});
  loop(state, qkv.numel(), [&] { ops::causal_attention_plain(qkv, heads); });
}

void attention_plain_backward(State& state) {
  const std::int64_t heads = state.range(2);
  const at::Tensor qkv = random({state.range(0), state.range(1), 3 * heads * state.range(3)});
  const ops::AttentionResult forward = ops::causal_attention_plain(qkv, heads);
  const at::Tensor grad = at::randn_like(forward.out);
  loop(state, qkv.numel(),
       [&] { ops::causal_attention_plain_backward(grad, qkv, forward, heads); });
}

void rotary(State& state) {
  const std::int64_t heads = state.range(2), size = state.range(3);
  const at::Tensor x = random({state.range(0), state.range(1), heads * size});
  const at::Tensor table = ops::rotary_table(state.range(1), size, 10000, at::kFloat);
  loop(state, x.numel(), [&] { ops::rotary(x, table); });
}

// --- Vocabulary: [rows, classes or width]

void cross_entropy(State& state) {
  const at::Tensor logits = random({state.range(0), state.range(1)});
  const at::Tensor targets = at::randint(state.range(1), {state.range(0)}, at::kLong);
  const at::Tensor one = at::ones({}, at::kFloat);
  // Forward and backward turn one memory into the gradient, which are logits as good as any.
  loop(state, logits.numel(), [&] {
    const at::Tensor logsumexp = ops::cross_entropy(logits, targets).logsumexp;
    ops::cross_entropy_backward(one, logits, targets, logsumexp);
  });
}

void embedding(State& state) {
  const at::Tensor weight = random({state.range(1), state.range(2)});
  const at::Tensor indices = at::randint(state.range(1), {state.range(0)}, at::kLong);
  loop(state, state.range(0) * state.range(2), [&] { ops::embedding(weight, indices); });
}

void embedding_weight_grad(State& state) {
  const at::Tensor target = at::zeros({state.range(1), state.range(2)}, at::kFloat);
  const at::Tensor indices = at::randint(state.range(1), {state.range(0)}, at::kLong);
  const at::Tensor grad = random({state.range(0), state.range(2)});
  loop(state, grad.numel(), [&] { ops::embedding_weight_grad(grad, indices, target, false); });
}

// --- Images: [batch, channels, height = width]

void conv(State& state) {
  const std::int64_t channels = state.range(1), side = state.range(2);
  const at::Tensor x = random({state.range(0), channels, side, side});
  const at::Tensor weight = random({channels, channels, 3, 3}), bias = random({channels});
  loop(state, x.numel(), [&] { ops::conv(x, weight, bias, {{1, 1}, {1, 1}}); });
}

void conv_backward(State& state) {
  const std::int64_t channels = state.range(1), side = state.range(2);
  const at::Tensor x = random({state.range(0), channels, side, side}), grad = at::randn_like(x);
  const at::Tensor weight = random({channels, channels, 3, 3}), target = at::empty_like(weight);
  const ops::ConvSteps steps = {{1, 1}, {1, 1}};
  loop(state, x.numel(), [&] {
    ops::conv_weight_grad(grad, x, target, false, steps);
    ops::conv_input_grad(grad, x, weight, steps);
  });
}

void batch_norm(State& state) {
  const std::int64_t channels = state.range(1), side = state.range(2);
  const at::Tensor x = random({state.range(0), channels, side, side});
  const at::Tensor weight = random({channels}), bias = random({channels});
  const ops::RunningStatistics running = {at::zeros({channels}, at::kFloat),
                                          at::ones({channels}, at::kFloat)};
  loop(state, x.numel(), [&] { ops::batch_norm_training(x, weight, bias, running, 0.1, 1e-5); });
}

void max_pool(State& state) {
  const std::int64_t channels = state.range(1), side = state.range(2);
  const at::Tensor x = random({state.range(0), channels, side, side});
  loop(state, x.numel(), [&] { ops::max_pool(x, ops::PoolWindow::tiles({2, 2})); });
}

}  // namespace

void register_benchmarks() {
  register_linear();
  const std::vector<std::string> rows = {"rows", "width"};
  add("gelu", rows, {{512, 1536}, {128, 3072}}, gelu);
  add("gelu_backward", rows, {{512, 1536}, {128, 3072}}, gelu_backward);
  add("swiglu", rows, {{512, 1024}}, swiglu);
  add("swiglu_backward", rows, {{512, 1024}}, swiglu_backward);
  add("layer_norm", rows, {{512, 384}, {128, 768}}, layer_norm);
  add("layer_norm_backward", rows, {{512, 384}, {128, 768}}, layer_norm_backward);
  add("rms_norm", rows, {{512, 384}}, rms_norm);
  add("rms_norm_backward", rows, {{512, 384}}, rms_norm_backward);
  add("dropout", rows, {{512, 384}}, dropout);
  const std::vector<std::string> heads = {"batch", "seq", "heads", "size"};
  const std::vector<std::vector<std::int64_t>> heads_sizes = {{4, 128, 6, 64}, {1, 512, 12, 64}};
  add("attention", heads, heads_sizes, attention);
  add("attention_backward", heads, heads_sizes, attention_backward);
  add("attention_plain", heads, heads_sizes, attention_plain);
  add("attention_plain_backward", heads, heads_sizes, attention_plain_backward);
  add("rotary", heads, heads_sizes, rotary);
  add("cross_entropy", {"rows", "classes"}, {{512, 256}, {128, 50257}}, cross_entropy);
  const std::vector<std::string> table = {"rows", "vocab", "width"};
  add("embedding", table, {{512, 256, 384}, {128, 50257, 768}}, embedding);
  add("embedding_weight_grad", table, {{512, 256, 384}, {128, 50257, 768}}, embedding_weight_grad);
  const std::vector<std::string> images = {"batch", "channels", "side"};
  add("conv3x3", images, {{8, 32, 32}}, conv);
  add("conv3x3_backward", images, {{8, 32, 32}}, conv_backward);
  add("batch_norm", images, {{8, 32, 32}}, batch_norm);
  add("max_pool2x2", images, {{8, 32, 32}}, max_pool);
}

}  // namespace shardbench::micro
