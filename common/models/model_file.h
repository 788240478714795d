#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/models/config.h"

namespace shardbench::models {

/// The model that `--model` names: where `name` ends in .json, that file, else a preset. Throws
/// UserError as `preset` and `read_model_file` do.
ModelConfig model_named(const std::string& name);

/// A model described by a file: one JSON object with "family" (mlp, convnet, gpt2, llama), or
/// "base" (a preset whose sizes are the start), or both; "name" (the file's name without .json
/// unless given); and any size that the family reads, under its key in `fields()`. Without a base,
/// sizes left out are those of the family's smallest preset. Throws UserError in one line that
/// starts with the file's path and names the key and what would be valid.
ModelConfig read_model_file(const std::string& path);

/// What a model file would have to say: name, family and every size that the family reads.
nlohmann::ordered_json model_json(const ModelConfig& config);

}  // namespace shardbench::models
