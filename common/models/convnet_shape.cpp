#include "common/models/shape_writer.h"

namespace shardbench::models {

void write_convnet(ShapeWriter& writer, const ModelConfig& config) {
  const int root = writer.module(-1, "", "ConvNet");
  writer.linear(root, "head", config.hidden, config.vocab);
}

}  // namespace shardbench::models
