#include <fmt/format.h>

#include "common/models/config.h"
#include "common/models/shape_writer.h"

namespace shardbench::models {

namespace {

using sharding::ModelShape;

void write_gpt2(ShapeWriter& writer, const ModelConfig& config, ModelShape& shape) {
  const std::int64_t width = config.hidden;
  const int root = writer.module(-1, "", "GPT2");
  const std::size_t wte = writer.token_embedding(root, "wte", config);
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
    writer.head(root, "lm_head", config);
  }
}

void write_mlp(ShapeWriter& writer, const ModelConfig& config) {
  const int root = writer.module(-1, "", "MLPModel");
  writer.token_embedding(root, "embed", config);
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
    case Family::kConvnet:
      write_convnet(writer, config);
      break;
    case Family::kLlama:
      write_llama(writer, config);
      break;
    case Family::kGpt2:
      write_gpt2(writer, config, shape);
      break;
  }
  return shape;
}

}  // namespace shardbench::models
