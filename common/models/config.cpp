#include "common/models/config.h"

#include <algorithm>
#include <string_view>

#include "common/core/error.h"
#include "common/models/convnet_stages.h"

namespace shardbench::models {

namespace {

ModelConfig gpt2_sized(std::string name, std::int64_t layers, std::int64_t heads,
                       std::int64_t hidden) {
  return {.name = std::move(name),
          .family = Family::kGpt2,
          .layers = layers,
          .heads = heads,
          .hidden = hidden,
          .vocab = 50257,
          .context = 1024,
          .tied = true};
}

/// Llama's presets leave the head untied.
ModelConfig llama_sized(std::string name, std::int64_t layers, std::int64_t heads,
                        std::int64_t kv_heads, std::int64_t hidden, std::int64_t feed_forward,
                        std::int64_t vocab, std::int64_t context) {
  return {.name = std::move(name),
          .family = Family::kLlama,
          .layers = layers,
          .heads = heads,
          .hidden = hidden,
          .vocab = vocab,
          .context = context,
          .tied = false,
          .kv_heads = kv_heads,
          .feed_forward = feed_forward};
}

/// Llama 3 (Grattafiori et al. 2024, table 3): a longer base period and a larger vocabulary.
ModelConfig llama3_sized(std::string name, std::int64_t layers, std::int64_t heads,
                         std::int64_t hidden, std::int64_t feed_forward) {
  ModelConfig config =
      llama_sized(std::move(name), layers, heads, 8, hidden, feed_forward, 128256, 8192);
  config.rope_theta = 500000;
  return config;
}

/// Qwen-14B (Bai et al. 2023): biases on queries, keys and values.
ModelConfig qwen_14b() {
  ModelConfig config = llama_sized("qwen-14b", 40, 40, 40, 5120, 13696, 152064, 2048);
  config.qkv_bias = true;
  config.norm_eps = 1e-6;
  return config;
}

/// GPT-3 (Brown et al. 2020, table 2.1), taken as GPT-2 of that size.
ModelConfig gpt3_175b() {
  ModelConfig config = gpt2_sized("gpt3-175b", 96, 96, 12288);
  config.context = 2048;
  return config;
}

std::vector<ModelConfig> make_presets() {
  return {
      // The width is no multiple of 3, 4 or 8, so that rows do not divide evenly among ranks.
      {.name = "mlp",
       .family = Family::kMlp,
       .layers = 4,
       .heads = 1,
       .hidden = 250,
       .vocab = 256,
       .context = 256,
       .tied = false},
      // Channels from 33 on: rows of most weights do not divide evenly among ranks.
      {.name = "convnet",
       .family = Family::kConvnet,
       .layers = 4,
       .heads = 1,
       .hidden = 33,
       .vocab = 256,
       .context = 3 * 16 * 16,
       .tied = false,
       .image = {3, 16, 16}},
      {.name = "gpt2-nano",
       .family = Family::kGpt2,
       .layers = 6,
       .heads = 6,
       .hidden = 384,
       .vocab = 256,
       .context = 256,
       .tied = true},
      gpt2_sized("gpt2", 12, 12, 768),
      gpt2_sized("gpt2-medium", 24, 16, 1024),
      gpt2_sized("gpt2-large", 36, 20, 1280),
      gpt2_sized("gpt2-xl", 48, 25, 1600),
      // Three queries per key; rows of the feed-forward divide by neither 3 nor 8.
      llama_sized("llama-nano", 6, 6, 2, 384, 1078, 256, 256),
      // Llama 2 (Touvron et al. 2023, table 1).
      llama_sized("llama2-7b", 32, 32, 32, 4096, 11008, 32000, 4096),
      llama_sized("llama2-13b", 40, 40, 40, 5120, 13824, 32000, 4096),
      llama_sized("llama2-70b", 80, 64, 8, 8192, 28672, 32000, 4096),
      llama3_sized("llama3-8b", 32, 32, 4096, 14336),
      llama3_sized("llama3-70b", 80, 64, 8192, 28672),
      qwen_14b(),
      gpt3_175b(),
  };
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> kPresets = make_presets();
  return kPresets;
}

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& p : presets()) names.push_back(p.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  const ModelConfig* nearest = nullptr;
  std::size_t nearest_distance = 0;
  for (const ModelConfig& p : presets()) {
    if (p.name == name) return p;
    const std::size_t distance = edit_distance(name, p.name);
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &p;
      nearest_distance = distance;
    }
  }
  throw UserError::format("unknown model '{}'; did you mean {}? Known: {}", name, nearest->name,
                          fmt::join(preset_names(), ", "));
}

std::int64_t fixed_seq(const ModelConfig& config) {
  return config.family == Family::kConvnet ? config.context : 0;
}

std::int64_t least_batch(const ModelConfig& config) {
  if (config.family != Family::kConvnet) return 1;
  const std::vector<std::int64_t> size = convnet_stages(config).back().size;
  return std::all_of(size.begin(), size.end(), [](auto s) { return s == 1; }) ? 2 : 1;
}

}  // namespace shardbench::models
