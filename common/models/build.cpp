#include "common/models/build.h"

#include "common/core/error.h"
#include "common/models/convnet.h"
#include "common/models/gpt2.h"
#include "common/models/llama.h"
#include "common/models/mlp_model.h"

namespace shardbench::models {

std::unique_ptr<Model> build(const ModelConfig& config) {
  validate(config);
  std::unique_ptr<Module> root;
  switch (config.family) {
    case Family::kMlp:
      root = std::make_unique<MLPModel>(config);
      break;
    case Family::kConvnet:
      root = std::make_unique<ConvNet>(config);
      break;
    case Family::kLlama:
      root = std::make_unique<Llama>(config);
      break;
    case Family::kGpt2:
      root = std::make_unique<GPT2>(config);
      break;
  }
  SHARDBENCH_CHECK(root != nullptr, "model family {} has no modules",
                   static_cast<int>(config.family));
  return std::make_unique<Model>(config.name, std::move(root));
}

}  // namespace shardbench::models
