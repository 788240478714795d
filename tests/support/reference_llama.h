#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "common/models/config.h"

namespace shardbench::testing {

/// Llama and its parts written down a second time, in plain ATen calls with ATen's autograd.
/// Weights are looked up below `at_path`, which ends in a dot unless it is empty.

using Weights = std::map<std::string, at::Tensor>;

inline at::Tensor rms_norm_of(const at::Tensor& x, Weights& w, const std::string& at_path,
                              double eps = 1e-5) {
  return x / (x.square().mean(-1, true) + eps).sqrt() * w[at_path + "weight"];
}

/// Of x [B, heads, T, size]: x cos + rotate_half(x) sin, with the angles of both halves alike.
inline at::Tensor rotary_of(const at::Tensor& x, double theta) {
  const std::int64_t length = x.size(2), size = x.size(3);
  const at::Tensor exponents = at::arange(0, size, 2, x.options()) / size;
  const at::Tensor angles =
      at::outer(at::arange(length, x.options()), at::pow(theta, exponents.neg()));
  const at::Tensor both = at::cat({angles, angles}, -1);
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return x * both.cos() + at::cat({halves[1].neg(), halves[0]}, -1) * both.sin();
}

/// Of q [B, heads, T, size], k and v [B, kv_heads, T, size], with keys and values repeated.
inline at::Tensor grouped_attention_of(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v) {
  const std::int64_t queries = q.size(1) / k.size(1), length = q.size(2);
  const at::Tensor keys = k.repeat_interleave(queries, 1), values = v.repeat_interleave(queries, 1);
  const at::Tensor scores =
      at::matmul(q, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  return at::matmul(
      at::softmax(scores.masked_fill(later, -std::numeric_limits<double>::infinity()), -1), values);
}

inline at::Tensor projection_of(const at::Tensor& x, Weights& w, const std::string& at_path) {
  const at::Tensor y = at::matmul(x, w.at(at_path + "weight").t());
  return w.count(at_path + "bias") == 0 ? y : y + w[at_path + "bias"];
}

inline at::Tensor llama_attention_of(const at::Tensor& x, Weights& w, const std::string& at_path,
                                     std::int64_t heads, std::int64_t kv_heads,
                                     double theta = 10000) {
  const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto by_head = [&](const char* name, std::int64_t count) {
    return projection_of(x, w, at_path + name)
        .reshape({batch, length, count, width / heads})
        .permute({0, 2, 1, 3});
  };
  const at::Tensor mixed =
      grouped_attention_of(rotary_of(by_head("q.", heads), theta),
                           rotary_of(by_head("k.", kv_heads), theta), by_head("v.", kv_heads));
  return projection_of(mixed.permute({0, 2, 1, 3}).reshape({batch, length, width}), w,
                       at_path + "o.");
}

inline at::Tensor swiglu_of(const at::Tensor& x, Weights& w, const std::string& at_path) {
  const at::Tensor gate = projection_of(x, w, at_path + "gate.");
  return projection_of(gate * at::sigmoid(gate) * projection_of(x, w, at_path + "up."), w,
                       at_path + "down.");
}

inline at::Tensor llama_block_of(const at::Tensor& x, Weights& w, const std::string& at_path,
                                 std::int64_t heads, std::int64_t kv_heads, double theta = 10000,
                                 double eps = 1e-5) {
  const at::Tensor mid = x + llama_attention_of(rms_norm_of(x, w, at_path + "attn_norm.", eps), w,
                                                at_path + "attn.", heads, kv_heads, theta);
  return mid + swiglu_of(rms_norm_of(mid, w, at_path + "mlp_norm.", eps), w, at_path + "mlp.");
}

/// The mean loss.
inline at::Tensor reference_llama(const models::ModelConfig& c, Weights& w,
                                  const at::Tensor& tokens, const at::Tensor& targets) {
  at::Tensor x = at::embedding(w["embed.weight"], tokens);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    x = llama_block_of(x, w, "layers." + std::to_string(layer) + ".", c.heads, c.kv_heads,
                       c.rope_theta, c.norm_eps);
  }
  const at::Tensor head = c.tied ? w["embed.weight"] : w["head.weight"];
  const at::Tensor logits = at::matmul(rms_norm_of(x, w, "norm.", c.norm_eps), head.t());
  return at::cross_entropy_loss(logits.reshape({tokens.numel(), c.vocab}), targets.reshape({-1}));
}

}  // namespace shardbench::testing
