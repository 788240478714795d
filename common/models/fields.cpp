#include "common/models/fields.h"

#include <algorithm>

#include "common/core/error.h"

namespace shardbench::models {

namespace {

std::vector<Field> make_fields() {
  using enum Family;
  const std::vector<Family> all = {kMlp, kConvnet, kGpt2, kLlama};
  const std::vector<Family> sequences = {kMlp, kGpt2, kLlama};
  const std::vector<Family> transformers = {kGpt2, kLlama};
  constexpr double kMostLayers = 1 << 14, kMostHeads = 1 << 16, kMostWidth = 1 << 20,
                   kMostRows = 1 << 24;
  return {
      {"layers", &ModelConfig::layers, all, 1, kMostLayers},
      {"heads", &ModelConfig::heads, transformers, 1, kMostHeads},
      {"hidden", &ModelConfig::hidden, all, 1, kMostWidth},
      {"vocab", &ModelConfig::vocab, all, 1, kMostRows},
      {"context", &ModelConfig::context, sequences, 1, kMostRows},
      {"tied", &ModelConfig::tied, transformers},
      {"split_head", &ModelConfig::split_head, transformers, 1, 1 << 10},
      {"dropout", &ModelConfig::dropout, {kMlp, kGpt2}, 0, 1, false, true},
      {"kv_heads", &ModelConfig::kv_heads, {kLlama}, 1, kMostHeads},
      {"feed_forward", &ModelConfig::feed_forward, {kLlama}, 1, 4 * kMostWidth},
      {"qkv_bias", &ModelConfig::qkv_bias, {kLlama}},
      {"rope_theta", &ModelConfig::rope_theta, {kLlama}, 0, 1e12, true},
      {"norm_eps", &ModelConfig::norm_eps, {kLlama}, 0, 1, true},
      {"image", &ModelConfig::image, {kConvnet}, 1, 1 << 16},
  };
}

}  // namespace

bool Field::read_by(Family family) const {
  return std::find(families.begin(), families.end(), family) != families.end();
}

std::string Field::expected() const {
  if (std::holds_alternative<bool ModelConfig::*>(member)) return "true or false";
  if (std::holds_alternative<std::vector<std::int64_t> ModelConfig::*>(member)) {
    return fmt::format(
        "a list of whole numbers from {:.0f} to {:.0f}: channels, then one to three sizes", min,
        max);
  }
  if (std::holds_alternative<std::int64_t ModelConfig::*>(member)) {
    return fmt::format("a whole number from {:.0f} to {:.0f}", min, max);
  }
  return fmt::format("a number {} {} and {} {}", above_min ? "above" : "of at least", min,
                     below_max ? "below" : "at most", max);
}

const std::vector<Field>& fields() {
  static const std::vector<Field> kFields = make_fields();
  return kFields;
}

const Field& field(std::string_view key) {
  const auto found =
      std::find_if(fields().begin(), fields().end(), [&](const Field& f) { return f.key == key; });
  SHARDBENCH_CHECK(found != fields().end(), "models have no size '{}'", key);
  return *found;
}

std::vector<std::string> keys_of(Family family) {
  std::vector<std::string> keys;
  for (const Field& f : fields()) {
    if (f.read_by(family)) keys.push_back(f.key);
  }
  return keys;
}

const std::vector<std::string>& family_names() {
  static const std::vector<std::string> kNames = {"mlp", "convnet", "gpt2", "llama"};
  return kNames;
}

const std::string& name_of(Family family) {
  return family_names().at(static_cast<std::size_t>(family));
}

std::int64_t kv_heads_of(const ModelConfig& config) {
  return config.kv_heads == 0 ? config.heads : config.kv_heads;
}

std::vector<std::int64_t> head_rows(const ModelConfig& config) {
  std::vector<std::int64_t> rows;
  for (std::int64_t part = 0; part < config.split_head; ++part) {
    rows.push_back(config.vocab * (part + 1) / config.split_head -
                   config.vocab * part / config.split_head);
  }
  return rows;
}

}  // namespace shardbench::models
