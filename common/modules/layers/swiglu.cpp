#include "common/modules/layers/swiglu.h"

#include <ATen/ATen.h>

#include "common/modules/layers/functional.h"

namespace shardbench {

SwiGLU::SwiGLU(std::int64_t width, std::int64_t inner, double residual_stddev)
    : gate_(&add_child<Linear>("gate", width, inner, false, Init::normal(0.02))),
      up_(&add_child<Linear>("up", width, inner, false, Init::normal(0.02))),
      down_(&add_child<Linear>("down", inner, width, false, Init::normal(residual_stddev))) {}

at::Tensor SwiGLU::forward(const Tensors& inputs) {
  return (*down_)(functional::swiglu((*gate_)(inputs[0]), (*up_)(inputs[0])));
}

}  // namespace shardbench
