#include "common/models/shape_writer.h"

namespace shardbench::models {

void write_llama(ShapeWriter& writer, const ModelConfig& config) {
  const int root = writer.module(-1, "", "Llama");
  writer.embedding(root, "embed", config.vocab, config.hidden);
}

}  // namespace shardbench::models
