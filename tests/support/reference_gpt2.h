#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "common/models/config.h"

namespace shardbench::testing {

using Weights = std::map<std::string, at::Tensor>;

/// GPT-2 written down a second time, in plain ATen calls with ATen's autograd.
inline at::Tensor reference_gpt2(const models::ModelConfig& c, Weights& w, const at::Tensor& tokens,
                                 const at::Tensor& targets) {
  const std::int64_t batch = tokens.size(0), length = tokens.size(1), size = c.hidden / c.heads;
  const auto norm = [&](const at::Tensor& x, const std::string& at_path) {
    return at::layer_norm(x, {c.hidden}, w[at_path + ".weight"], w[at_path + ".bias"], 1e-5);
  };
  const auto linear = [&](const at::Tensor& x, const std::string& at_path) {
    return at::matmul(x, w[at_path + ".weight"].t()) + w[at_path + ".bias"];
  };
  const at::Tensor hidden_keys = at::ones({length, length}, at::kBool).triu(1);
  at::Tensor x = at::embedding(w["wte.weight"], tokens) + w["wpe.weight"].narrow(0, 0, length);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    const auto qkv = linear(norm(x, h + ".ln_1"), h + ".attn.qkv").split(c.hidden, 2);
    const auto heads = [&](const at::Tensor& t) {
      return t.reshape({batch, length, c.heads, size}).permute({0, 2, 1, 3});
    };
    const at::Tensor scores = at::matmul(heads(qkv[0]), heads(qkv[1]).transpose(2, 3)) /
                              std::sqrt(static_cast<double>(size));
    const at::Tensor weights =
        at::softmax(scores.masked_fill(hidden_keys, -std::numeric_limits<double>::infinity()), -1);
    const at::Tensor mixed =
        at::matmul(weights, heads(qkv[2])).permute({0, 2, 1, 3}).reshape({batch, length, c.hidden});
    x = x + linear(mixed, h + ".attn.proj");
    x = x + linear(at::gelu(linear(norm(x, h + ".ln_2"), h + ".mlp.fc"), "tanh"), h + ".mlp.proj");
  }
  const at::Tensor head = c.tied ? w["wte.weight"] : w["lm_head.weight"];
  const at::Tensor logits = at::matmul(norm(x, "ln_f"), head.t());
  return at::cross_entropy_loss(logits.reshape({batch * length, c.vocab}), targets.reshape({-1}));
}

}  // namespace shardbench::testing
