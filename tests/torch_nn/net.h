#pragma once

#include <torch/nn.h>

#include <memory>
#include <string>
#include <vector>

#include "common/torch_nn/adapter.h"

namespace shardbench::testing {

/// A norm and two linear layers with a residual; the inner bias is frozen.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    in = register_module("in", torch::nn::Linear(6, 11));
    out = register_module("out", torch::nn::Linear(11, 6));
    in->bias.set_requires_grad(false);
  }
  at::Tensor forward(at::Tensor x) { return x + out(at::gelu(in(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear in{nullptr}, out{nullptr};
};
TORCH_MODULE(Block);

/// Two units, one of them called twice; a tied output layer; a scalar; a layer that is never
/// called, and one that is called on request.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    tokens = register_module("tokens", torch::nn::Embedding(9, 6));
    first = register_module("first", Block());
    second = register_module("second", Block());
    scale = register_parameter("scale", at::full({}, 1.25));
    extra = register_module("extra", torch::nn::Linear(6, 6));
    never = register_module("never", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(at::Tensor text) {
    at::Tensor x = torch_nn::call(first, tokens(text));
    x = torch_nn::call(second, x);
    if (with_extra) x = extra(x);
    x = torch_nn::call(second, x);
    return at::matmul(x, tokens->weight.t()) * scale;
  }
  torch::nn::Embedding tokens{nullptr};
  Block first{nullptr}, second{nullptr};
  torch::nn::Linear extra{nullptr}, never{nullptr};
  at::Tensor scale;
  bool with_extra = false;
};
TORCH_MODULE(Net);

/// The same weights in every process.
inline Net make_net() {
  torch::manual_seed(11);
  return Net();
}

}  // namespace shardbench::testing
