#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/sharding/model_shape.h"

namespace shardbench::sharding {

/// Makes ModelShapes for tests, one module and parameter after the other.
class ShapeBuilder {
 public:
  explicit ShapeBuilder(std::string name = "test", std::string root_class = "Root") {
    model_.name = std::move(name);
    model_.modules.push_back({"", std::move(root_class), -1});
  }
  /// Adds a module below `parent`; call in pre-order.
  int module(const std::string& name, const std::string& class_name, int parent = 0) {
    const std::string& path = model_.modules[static_cast<std::size_t>(parent)].path;
    model_.modules.push_back({path.empty() ? name : path + "." + name, class_name, parent});
    return static_cast<int>(model_.modules.size()) - 1;
  }
  /// Adds a parameter; decay is on for two and more dimensions.
  int parameter(int module, const std::string& name, std::vector<std::int64_t> dims,
                bool requires_grad = true) {
    ParameterShape shape;
    const std::string& path = model_.modules[static_cast<std::size_t>(module)].path;
    shape.name = path.empty() ? name : path + "." + name;
    shape.decay = dims.size() >= 2;
    shape.dims = std::move(dims);
    shape.module = module;
    shape.requires_grad = requires_grad;
    model_.parameters.push_back(std::move(shape));
    return static_cast<int>(model_.parameters.size()) - 1;
  }
  /// Declares that `module` also uses the parameter.
  void tie(int parameter, int module) {
    model_.parameters[static_cast<std::size_t>(parameter)].also_used_by.push_back(module);
  }
  const ModelShape& model() const { return model_; }

 private:
  ModelShape model_;
};

/// A GPT of this size: wte, wpe, blocks of attention and MLP, ln_f, and an untied or tied head.
inline ModelShape gpt_shape(std::int64_t layers, std::int64_t hidden, std::int64_t vocab,
                            std::int64_t context, bool tied) {
  ShapeBuilder build("gpt", "Gpt2");
  const int wte = build.parameter(build.module("wte", "Embedding"), "weight", {vocab, hidden});
  build.parameter(build.module("wpe", "Embedding"), "weight", {context, hidden});
  const auto norm = [&](const std::string& name, int parent) {
    const int module = build.module(name, "LayerNorm", parent);
    build.parameter(module, "weight", {hidden});
    build.parameter(module, "bias", {hidden});
  };
  const auto linear = [&](const std::string& name, int parent, std::int64_t out, std::int64_t in) {
    const int module = build.module(name, "Linear", parent);
    build.parameter(module, "weight", {out, in});
    build.parameter(module, "bias", {out});
  };
  for (std::int64_t i = 0; i < layers; ++i) {
    const int block = build.module("h." + std::to_string(i), "TransformerBlock");
    norm("ln_1", block);
    const int attention = build.module("attn", "Attention", block);
    linear("qkv", attention, 3 * hidden, hidden);
    linear("proj", attention, hidden, hidden);
    norm("ln_2", block);
    const int mlp = build.module("mlp", "Mlp", block);
    linear("fc", mlp, 4 * hidden, hidden);
    linear("proj", mlp, hidden, 4 * hidden);
  }
  norm("ln_f", 0);
  const int head = build.module("lm_head", "Linear");
  if (tied) {
    build.tie(wte, head);
  } else {
    build.parameter(head, "weight", {vocab, hidden});
  }
  return build.model();
}

/// Small models with odd, empty, scalar, frozen and tied parameters.
inline std::vector<ModelShape> odd_models() {
  std::vector<ModelShape> models;
  {
    ShapeBuilder build("scalar");
    build.parameter(0, "temperature", {});
    models.push_back(build.model());
  }
  {
    ShapeBuilder build("mixed");
    const int a = build.module("a", "Linear");
    build.parameter(a, "weight", {18, 4});
    build.parameter(a, "bias", {18});
    const int b = build.module("b", "TransformerBlock");
    build.parameter(b, "frozen", {7, 3}, false);
    build.parameter(b, "scale", {});
    const int c = build.module("c", "Linear", b);
    build.parameter(c, "weight", {5, 33});
    build.parameter(c, "frozen_bias", {5}, false);
    const int d = build.module("d", "TransformerBlock");
    build.parameter(d, "one", {1});
    build.parameter(d, "empty", {0, 4});
    build.parameter(d, "no_columns", {3, 0});
    build.parameter(0, "last", {13, 2, 3});
    models.push_back(build.model());
  }
  {
    ShapeBuilder build("all frozen");
    const int a = build.module("a", "Linear");
    build.parameter(a, "weight", {6, 5}, false);
    build.parameter(build.module("b", "Linear"), "bias", {9}, false);
    models.push_back(build.model());
  }
  {
    ShapeBuilder build("frozen start");
    build.parameter(build.module("a", "Linear"), "weight", {6, 5}, false);
    build.parameter(build.module("b", "Linear"), "weight", {9, 6});
    build.parameter(build.module("c", "Linear"), "weight", {4, 9}, false);
    models.push_back(build.model());
  }
  models.push_back(gpt_shape(3, 6, 11, 5, true));
  models.push_back(gpt_shape(2, 20, 17, 9, false));
  return models;
}

inline const std::vector<int>& world_sizes() {
  static const std::vector<int> sizes = {1, 2, 3, 4, 5, 7, 8};
  return sizes;
}

}  // namespace shardbench::sharding
