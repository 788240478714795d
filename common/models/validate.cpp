#include <algorithm>
#include <cstdlib>

#include "common/core/error.h"
#include "common/models/config.h"
#include "common/models/fields.h"

namespace shardbench::models {

namespace {

/// The divisor of `of` that is closest to `wanted` among those that `fits` takes, the smaller of
/// two; 0 when it takes none.
template <typename Fits>
std::int64_t nearest_divisor(std::int64_t of, std::int64_t wanted, Fits fits) {
  std::int64_t best = 0;
  const auto consider = [&](std::int64_t d) {
    if (!fits(d)) return;
    const std::int64_t distance = std::abs(d - wanted), least = std::abs(best - wanted);
    if (best == 0 || distance < least || (distance == least && d < best)) best = d;
  };
  for (std::int64_t d = 1; d * d <= of; ++d) {
    if (of % d != 0) continue;
    consider(d);
    consider(of / d);
  }
  return best;
}

void check_count(const ModelConfig& config, const Field& field, std::int64_t value) {
  const auto min = static_cast<std::int64_t>(field.min), max = static_cast<std::int64_t>(field.max);
  if (value < min) {
    throw UserError::format("model {}: {} is {}; it must be at least {}", config.name, field.key,
                            value, min);
  }
  if (value > max) {
    throw UserError::format("model {}: {} is {}, which is too large; the most is {}", config.name,
                            field.key, value, max);
  }
}

void check_real(const ModelConfig& config, const Field& field, double value) {
  const bool large_enough = field.above_min ? value > field.min : value >= field.min;
  const bool small_enough = field.below_max ? value < field.max : value <= field.max;
  if (large_enough && small_enough) return;  // NaN is neither
  throw UserError::format("model {}: {} is {}; give {}", config.name, field.key, value,
                          field.expected());
}

void check_range(const ModelConfig& config, const Field& field) {
  if (const auto* count = std::get_if<std::int64_t ModelConfig::*>(&field.member)) {
    const bool standard = field.key == "kv_heads" && config.kv_heads == 0;
    if (!standard) check_count(config, field, config.**count);
  } else if (const auto* real = std::get_if<double ModelConfig::*>(&field.member)) {
    check_real(config, field, config.**real);
  } else if (const auto* list =
                 std::get_if<std::vector<std::int64_t> ModelConfig::*>(&field.member)) {
    for (std::int64_t value : config.**list) check_count(config, field, value);
  }
}

[[noreturn]] void heads_do_not_divide(const ModelConfig& config, std::int64_t nearest) {
  throw UserError::format("model {}: {} heads do not divide hidden {}; use {} heads", config.name,
                          config.heads, config.hidden, nearest);
}

void validate_head(const ModelConfig& config) {
  if (config.split_head == 1) return;
  if (config.tied) {
    throw UserError::format(
        "model {}: split_head is {}, but the head is the token embedding, which is used whole; "
        "nearest: 1, or give the head its own weights (tied false, --untied)",
        config.name, config.split_head);
  }
  if (config.split_head <= config.vocab) return;
  throw UserError::format("model {}: split_head is {}, but the head has {} rows; nearest: {}",
                          config.name, config.split_head, config.vocab, config.vocab);
}

}  // namespace

void validate(const ModelConfig& config) {
  for (const Field& field : fields()) {
    if (field.read_by(config.family)) check_range(config, field);
  }
  if (config.dropout != 0 && !field("dropout").read_by(config.family)) {
    throw UserError::format("model {}: dropout is {}, but family {} has none; nearest: 0",
                            config.name, config.dropout, name_of(config.family));
  }
  validate_head(config);
  if (config.family == Family::kGpt2) validate_gpt2(config);
  if (config.family == Family::kLlama) validate_llama(config);
  if (config.family == Family::kConvnet) validate_convnet(config);
}

void validate_gpt2(const ModelConfig& config) {
  if (config.hidden % config.heads == 0) return;
  heads_do_not_divide(
      config, nearest_divisor(config.hidden, config.heads, [](std::int64_t) { return true; }));
}

void validate_llama(const ModelConfig& config) {
  const auto even = [&](std::int64_t heads) { return config.hidden / heads % 2 == 0; };
  const std::int64_t heads = nearest_divisor(config.hidden, config.heads, even);
  if (heads == 0) {
    const std::int64_t pairs = 2 * config.heads;
    throw UserError::format(
        "model {}: hidden is {}, but rotary embedding turns pairs, so heads need an even width; "
        "nearest: {}",
        config.name, config.hidden,
        std::max<std::int64_t>(1, (config.hidden + config.heads) / pairs) * pairs);
  }
  if (config.hidden % config.heads != 0) heads_do_not_divide(config, heads);
  if (!even(config.heads)) {
    throw UserError::format(
        "model {}: {} heads of hidden {} are {} wide, but rotary embedding turns pairs; use {} "
        "heads",
        config.name, config.heads, config.hidden, config.hidden / config.heads, heads);
  }
  if (config.heads % kv_heads_of(config) == 0) return;
  throw UserError::format(
      "model {}: kv_heads is {}, which does not divide {} heads; nearest: {}", config.name,
      config.kv_heads, config.heads,
      nearest_divisor(config.heads, config.kv_heads, [](std::int64_t) { return true; }));
}

}  // namespace shardbench::models
