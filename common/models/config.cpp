#include "common/models/config.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "common/core/error.h"

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

void require_positive(const ModelConfig& config, const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw UserError::format("model {}: {} is {}; it must be at least 1", config.name, what, value);
}

/// Largest sizes for which every product of two of them fits into 63 bits with room to spare.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

/// The divisor of `of` that is closest to `wanted`; the smaller of two.
std::int64_t nearest_divisor(std::int64_t of, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d * d <= of; ++d) {
    if (of % d != 0) continue;
    for (std::int64_t candidate : {d, of / d}) {
      if (std::abs(candidate - wanted) < std::abs(best - wanted)) best = candidate;
    }
  }
  return best;
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

void validate(const ModelConfig& config) {
  require_positive(config, "layers", config.layers);
  require_positive(config, "hidden", config.hidden);
  require_positive(config, "vocab", config.vocab);
  require_positive(config, "context", config.context);
  for (std::int64_t size : {config.layers, config.hidden, config.vocab, config.context}) {
    if (size <= kLargestSize) continue;
    throw UserError::format("model {}: a size of {} is too large; the largest is {}", config.name,
                            size, kLargestSize);
  }
  if (config.family == Family::kGpt2) {
    require_positive(config, "heads", config.heads);
    if (config.hidden % config.heads != 0) {
      throw UserError::format("model {}: {} heads do not divide hidden {}; use {} heads",
                              config.name, config.heads, config.hidden,
                              nearest_divisor(config.hidden, config.heads));
    }
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw UserError::format("model {}: dropout is {}; it must be in [0, 1)", config.name,
                            config.dropout);
  }
}

double flops_per_token(const ModelConfig& config, std::int64_t seq) {
  const double width = static_cast<double>(config.hidden);
  const double layers = static_cast<double>(config.layers);
  const double head = width * static_cast<double>(config.vocab);  // tied or not, it is a product
  if (config.family == Family::kMlp) return 6 * (layers * width * width + head);
  const double blocks = layers * 12 * width * width;  // qkv 3, proj 1, mlp 4 + 4
  return 6 * (blocks + head) + 12 * layers * width * static_cast<double>(seq);
}

}  // namespace shardbench::models
