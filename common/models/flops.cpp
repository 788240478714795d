#include "common/models/config.h"
#include "common/models/convnet_stages.h"
#include "common/models/fields.h"

namespace shardbench::models {

namespace {

/// Weights of one layer that every token is multiplied with.
double layer_weights(const ModelConfig& config) {
  const double width = static_cast<double>(config.hidden);
  switch (config.family) {
    case Family::kMlp:
      return width * width;
    case Family::kConvnet:
      break;  // counted per window
    case Family::kGpt2:
      return 12 * width * width;  // qkv 3, proj 1, mlp 4 + 4
    case Family::kLlama: {
      const double kv_width =
          width / static_cast<double>(config.heads) * static_cast<double>(kv_heads_of(config));
      const double inner = static_cast<double>(config.feed_forward);
      return 2 * width * width + 2 * width * kv_width + 3 * width * inner;
    }
  }
  return 0;
}

}  // namespace

double flops_per_token(const ModelConfig& config, std::int64_t seq) {
  if (config.family == Family::kConvnet) {
    return convnet_flops_per_window(config) / static_cast<double>(config.context);
  }
  const double width = static_cast<double>(config.hidden);
  const double layers = static_cast<double>(config.layers);
  const double head = width * static_cast<double>(config.vocab);  // tied or not, it is a product
  const double matrices = 6 * (layers * layer_weights(config) + head);
  const bool attends = config.family == Family::kGpt2 || config.family == Family::kLlama;
  if (!attends) return matrices;
  // Scores and mixing run once per query head, however few heads keys and values have.
  return matrices + 12 * layers * width * static_cast<double>(seq);
}

}  // namespace shardbench::models
