#include <fmt/format.h>

#include "common/models/fields.h"
#include "common/models/shape_writer.h"

namespace shardbench::models {

namespace {

void write_attention(ShapeWriter& writer, int block, const ModelConfig& config) {
  const std::int64_t width = config.hidden;
  const std::int64_t kv_width = width / config.heads * kv_heads_of(config);
  const int attention = writer.module(block, "attn", "GroupedQueryAttention");
  writer.linear(attention, "q", width, width, config.qkv_bias);
  writer.linear(attention, "k", width, kv_width, config.qkv_bias);
  writer.linear(attention, "v", width, kv_width, config.qkv_bias);
  writer.linear(attention, "o", width, width, /*bias=*/false);
}

}  // namespace

void write_llama(ShapeWriter& writer, const ModelConfig& config) {
  const std::int64_t width = config.hidden;
  const int root = writer.module(-1, "", "Llama");
  const std::size_t embed = writer.token_embedding(root, "embed", config);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const int block = writer.module(root, fmt::format("layers.{}", layer), "LlamaBlock");
    writer.rms_norm(block, "attn_norm", width);
    write_attention(writer, block, config);
    writer.rms_norm(block, "mlp_norm", width);
    const int mlp = writer.module(block, "mlp", "SwiGLU");
    writer.linear(mlp, "gate", width, config.feed_forward, /*bias=*/false);
    writer.linear(mlp, "up", width, config.feed_forward, /*bias=*/false);
    writer.linear(mlp, "down", config.feed_forward, width, /*bias=*/false);
  }
  writer.rms_norm(root, "norm", width);
  if (config.tied) {
    writer.tied_linear(root, "head", embed);
  } else {
    writer.head(root, "head", config);
  }
}

}  // namespace shardbench::models
