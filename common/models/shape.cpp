#include <fmt/format.h>

#include "common/models/config.h"

namespace shardbench::models {

namespace {

using sharding::ModelShape;

/// Writes the module tree down in pre-order, as the constructors of the modules build it.
class ShapeWriter {
 public:
  explicit ShapeWriter(ModelShape& shape) : shape_(shape) {}

  /// Adds a module below `parent` (-1: the root) and returns its index.
  int module(int parent, const std::string& name, const char* class_name) {
    std::string path = name;
    if (parent > 0) path = shape_.modules[static_cast<std::size_t>(parent)].path + "." + name;
    shape_.modules.push_back({std::move(path), class_name, parent});
    return static_cast<int>(shape_.modules.size()) - 1;
  }

  /// Adds a parameter of `module` and returns its index.
  std::size_t parameter(int module, const char* name, std::vector<std::int64_t> dims) {
    const std::string& path = shape_.modules[static_cast<std::size_t>(module)].path;
    const bool decay = dims.size() >= 2;
    shape_.parameters.push_back({path + "." + name, std::move(dims), module, true, decay, {}});
    return shape_.parameters.size() - 1;
  }

  void linear(int parent, const char* name, std::int64_t in, std::int64_t out, bool bias = true) {
    const int m = module(parent, name, "Linear");
    parameter(m, "weight", {out, in});
    if (bias) parameter(m, "bias", {out});
  }

  void layer_norm(int parent, const char* name, std::int64_t width) {
    const int m = module(parent, name, "LayerNorm");
    parameter(m, "weight", {width});
    parameter(m, "bias", {width});
  }

  std::size_t embedding(int parent, const char* name, std::int64_t rows, std::int64_t width) {
    return parameter(module(parent, name, "Embedding"), "weight", {rows, width});
  }

 private:
  ModelShape& shape_;
};

void write_gpt2(ShapeWriter& writer, const ModelConfig& config, ModelShape& shape) {
  const std::int64_t width = config.hidden;
  const int root = writer.module(-1, "", "GPT2");
  const std::size_t wte = writer.embedding(root, "wte", config.vocab, width);
  writer.embedding(root, "wpe", config.context, width);
  writer.module(root, "dropout", "Dropout");
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const int block = writer.module(root, fmt::format("h.{}", layer), "TransformerBlock");
    writer.layer_norm(block, "ln_1", width);
    const int attention = writer.module(block, "attn", "CausalSelfAttention");
    writer.linear(attention, "qkv", width, 3 * width);
    writer.linear(attention, "proj", width, width);
    writer.module(attention, "dropout", "Dropout");
    writer.layer_norm(block, "ln_2", width);
    const int mlp = writer.module(block, "mlp", "MLP");
    writer.linear(mlp, "fc", width, 4 * width);
    writer.linear(mlp, "proj", 4 * width, width);
    writer.module(mlp, "dropout", "Dropout");
  }
  writer.layer_norm(root, "ln_f", width);
  if (config.tied) {
    const int head = writer.module(root, "lm_head", "Linear");
    shape.parameters[wte].also_used_by.push_back(head);
  } else {
    writer.linear(root, "lm_head", width, config.vocab, /*bias=*/false);
  }
}

void write_mlp(ShapeWriter& writer, const ModelConfig& config) {
  const int root = writer.module(-1, "", "MLPModel");
  writer.embedding(root, "embed", config.vocab, config.hidden);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const int hidden = writer.module(root, fmt::format("layers.{}", layer), "MLPLayer");
    writer.linear(hidden, "fc", config.hidden, config.hidden);
    writer.module(hidden, "dropout", "Dropout");
  }
  writer.linear(root, "head", config.hidden, config.vocab);
}

}  // namespace

sharding::ModelShape shape_of(const ModelConfig& config) {
  validate(config);
  ModelShape shape;
  shape.name = config.name;
  ShapeWriter writer(shape);
  switch (config.family) {
    case Family::kMlp:
      write_mlp(writer, config);
      break;
    case Family::kGpt2:
      write_gpt2(writer, config, shape);
      break;
  }
  return shape;
}

}  // namespace shardbench::models
