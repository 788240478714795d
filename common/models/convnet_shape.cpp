#include <algorithm>

#include "common/core/error.h"
#include "common/models/convnet_stages.h"
#include "common/models/fields.h"
#include "common/models/shape_writer.h"

namespace shardbench::models {

namespace {

constexpr std::int64_t kMostElements = 1 << 24;
constexpr std::int64_t kMostChannels = 1 << 20;

std::vector<std::int64_t> weight_dims(const ConvnetStage& stage) {
  std::vector<std::int64_t> dims = {stage.out, stage.in};
  dims.insert(dims.end(), stage.size.size(), kConvnetKernel);
  return dims;
}

}  // namespace

std::vector<ConvnetStage> convnet_stages(const ModelConfig& config) {
  std::vector<ConvnetStage> stages;
  std::int64_t in = config.image.front(), out = config.hidden;
  std::vector<std::int64_t> size(config.image.begin() + 1, config.image.end());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    ConvnetStage stage = {.in = in, .out = out, .size = size, .pool = {}};
    const bool shrinks = std::any_of(size.begin(), size.end(), [](auto s) { return s >= 2; });
    // After the last stage the mean over all positions follows, which needs no smaller image.
    if (shrinks && i + 1 < config.layers) {
      for (std::int64_t& s : size) {
        stage.pool.push_back(std::min<std::int64_t>(s, 2));
        s /= stage.pool.back();
      }
    }
    stages.push_back(std::move(stage));
    in = out;
    out *= 2;
  }
  return stages;
}

std::string image_text(const ModelConfig& config) {
  std::string text;
  for (std::int64_t size : config.image) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

std::int64_t image_elements(const ModelConfig& config) {
  std::int64_t elements = 1;
  for (std::int64_t size : config.image) elements = std::min(elements * size, 2 * kMostElements);
  return elements;
}

void validate_convnet(const ModelConfig& config) {
  const std::size_t sizes = config.image.size();
  if (sizes < 2 || sizes > 4) {
    throw UserError::format("model {}: image has {} sizes; give {}", config.name, sizes,
                            field("image").expected());
  }
  const std::int64_t elements = image_elements(config);
  if (elements > kMostElements) {
    throw UserError::format("model {}: an image of {} has too many elements; the most is {}",
                            config.name, image_text(config), kMostElements);
  }
  if (config.context != elements) {
    throw UserError::format(
        "model {}: context is {}, but an image of {} has {} elements; nearest: {}", config.name,
        config.context, image_text(config), elements, elements);
  }
  std::int64_t channels = config.hidden, most = 1;
  for (; most < config.layers && channels <= kMostChannels / 2; ++most) channels *= 2;
  if (config.layers > most) {
    throw UserError::format(
        "model {}: {} layers double {} channels beyond {}; the most is {} layers", config.name,
        config.layers, config.hidden, kMostChannels, most);
  }
}

double convnet_flops_per_window(const ModelConfig& config) {
  const std::vector<ConvnetStage> stages = convnet_stages(config);
  double flops = 6 * static_cast<double>(stages.back().out) * static_cast<double>(config.vocab);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    double products = i == 0 ? 4 : 6;
    for (std::int64_t d : weight_dims(stages[i])) products *= static_cast<double>(d);
    for (std::int64_t s : stages[i].size) products *= static_cast<double>(s);
    flops += products;
  }
  return flops;
}

void write_convnet(ShapeWriter& writer, const ModelConfig& config) {
  const int root = writer.module(-1, "", "ConvNet");
  const std::vector<ConvnetStage> stages = convnet_stages(config);
  const char* conv_class[] = {"Conv1d", "Conv2d", "Conv3d"};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const int block = writer.module(root, fmt::format("stages.{}", i), "ConvBlock");
    const int conv = writer.module(block, "conv", conv_class[stages[i].size.size() - 1]);
    writer.parameter(conv, "weight", weight_dims(stages[i]));
    const int norm = writer.module(block, "norm", "BatchNorm");
    writer.parameter(norm, "weight", {stages[i].out});
    writer.parameter(norm, "bias", {stages[i].out});
  }
  writer.linear(root, "head", stages.back().out, config.vocab);
}

}  // namespace shardbench::models
