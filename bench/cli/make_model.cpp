#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/flags.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/models/fields.h"
#include "common/models/model_file.h"

namespace shardbench::cli {
namespace {

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

/// Refuses a flag that would change nothing.
void require_effect(const models::ModelConfig& model, const std::string& key,
                    const std::string& flag) {
  if (models::field(key).read_by(model.family)) return;
  throw UserError::format("{} has no effect on {}, a model of family {}: leave it out (sizes: {})",
                          flag, model.name, models::name_of(model.family),
                          join(models::keys_of(model.family)));
}

models::ModelConfig named_model(const std::string& name) {
  try {
    return models::model_named(name);
  } catch (const UserError& error) {
    throw UserError::format("--model: {}", error.what());
  }
}

}  // namespace

models::ModelConfig make_model(const Flags& flags) {
  models::ModelConfig model = named_model(flags.model);
  const auto apply = [&](const std::string& key, const auto& given, auto& size) {
    if (!given) return;
    require_effect(model, key, flag_of(key));
    size = *given;
  };
  apply("layers", flags.layers, model.layers);
  apply("heads", flags.heads, model.heads);
  apply("kv_heads", flags.kv_heads, model.kv_heads);
  apply("hidden", flags.hidden, model.hidden);
  apply("feed_forward", flags.feed_forward, model.feed_forward);
  apply("vocab", flags.vocab, model.vocab);
  apply("split_head", flags.split_head, model.split_head);
  apply("context", flags.positions, model.context);
  apply("dropout", flags.dropout, model.dropout);
  if (flags.untied) {
    require_effect(model, "tied", "--untied");
    model.tied = false;
  }
  models::validate(model);
  return model;
}

}  // namespace shardbench::cli
