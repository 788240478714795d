#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/model_shape.h"

namespace shardbench::models {

enum class Family { kMlp, kGpt2 };

/// Sizes of a model. Presets fill it, flags change it. Torch-free.
struct ModelConfig {
  std::string name = "gpt2-nano";
  Family family = Family::kGpt2;
  std::int64_t layers = 6;     ///< transformer blocks, or hidden layers of the MLP
  std::int64_t heads = 6;      ///< GPT-2 only
  std::int64_t hidden = 384;   ///< width
  std::int64_t vocab = 256;    ///< token values, or classes
  std::int64_t context = 256;  ///< longest sequence that may be passed in
  bool tied = true;            ///< output head shares the token embedding (GPT-2 only)
  double dropout = 0;
};

/// Names that `preset` knows, in the order in which help shows them.
std::vector<std::string> preset_names();
/// Throws UserError naming all presets and the nearest one.
ModelConfig preset(const std::string& name);
/// Throws UserError for sizes that cannot be built (heads not dividing hidden, zero layers, ...).
void validate(const ModelConfig& config);

/// Modules and parameters without building anything; equals Model::shape() of the built model.
sharding::ModelShape shape_of(const ModelConfig& config);

/// Training FLOPs per token, forward + backward (6 per matrix weight plus attention), as in PaLM
/// appendix B.
double flops_per_token(const ModelConfig& config, std::int64_t seq);

}  // namespace shardbench::models
