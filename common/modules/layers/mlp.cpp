#include "common/modules/layers/mlp.h"

#include <ATen/ATen.h>

#include "common/modules/layers/functional.h"

namespace shardbench {

MLP::MLP(std::int64_t width, double residual_stddev, double dropout)
    : fc_(&add_child<Linear>("fc", width, 4 * width, true, Init::normal(0.02))),
      proj_(&add_child<Linear>("proj", 4 * width, width, true, Init::normal(residual_stddev))),
      dropout_(&add_child<Dropout>("dropout", dropout)) {}

at::Tensor MLP::forward(const Tensors& inputs) {
  return (*dropout_)((*proj_)(functional::gelu((*fc_)(inputs[0]))));
}

}  // namespace shardbench
