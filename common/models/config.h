#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/model_shape.h"

namespace shardbench::models {

enum class Family { kMlp, kConvnet, kGpt2, kLlama };

/// Sizes of a model. Presets fill it, flags and model files change it. Torch-free.
struct ModelConfig {
  std::string name = "gpt2-nano";
  Family family = Family::kGpt2;
  std::int64_t layers = 6;      ///< transformer blocks, hidden layers (MLP), or stages (convnet)
  std::int64_t heads = 6;       ///< attention heads (GPT-2, Llama)
  std::int64_t hidden = 384;    ///< width; channels of the first stage (convnet)
  std::int64_t vocab = 256;     ///< token values, or classes
  std::int64_t context = 256;   ///< longest sequence; elements of one image (convnet)
  bool tied = true;             ///< output head shares the token embedding (GPT-2, Llama)
  double dropout = 0;           ///< GPT-2 and MLP
  std::int64_t split_head = 1;  ///< units that a head of its own is cut into (GPT-2, Llama)
  // Llama.
  std::int64_t kv_heads = 0;      ///< heads of keys and values; 0: as many as heads
  std::int64_t feed_forward = 0;  ///< inner width of the SwiGLU
  bool qkv_bias = false;          ///< biases on queries, keys and values (Qwen)
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  // Convnet.
  std::vector<std::int64_t> image = {};  ///< channels, then one to three spatial sizes
};

/// Names that `preset` knows, in the order in which help shows them.
std::vector<std::string> preset_names();
/// Throws UserError naming all presets and the nearest one.
ModelConfig preset(const std::string& name);
/// Throws UserError for sizes that cannot be built (heads not dividing hidden, zero layers, ...).
void validate(const ModelConfig& config);

/// Modules and parameters without building anything; equals Model::shape() of the built model.
sharding::ModelShape shape_of(const ModelConfig& config);

/// The one sequence length that the model takes: a convnet's window is an image. 0: any up to the
/// context.
std::int64_t fixed_seq(const ModelConfig& config);
/// The smallest micro-batch that the model can train on: 2 where a batch norm sees a single
/// position per sample, as one value has no variance; 1 elsewhere.
std::int64_t least_batch(const ModelConfig& config);

/// Training FLOPs per token, forward + backward (6 per matrix weight plus attention), as in PaLM
/// appendix B; a convnet's are those of one window, divided by its tokens.
double flops_per_token(const ModelConfig& config, std::int64_t seq);

}  // namespace shardbench::models
