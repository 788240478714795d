#include "common/modules/layers/attention.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/modules/layers/functional.h"

namespace shardbench {

CausalSelfAttention::CausalSelfAttention(std::int64_t width, std::int64_t heads,
                                         double residual_stddev, double dropout)
    : heads_(heads) {
  SHARDBENCH_CHECK(heads > 0 && width % heads == 0, "{} heads over width {}", heads, width);
  qkv_ = &add_child<Linear>("qkv", width, 3 * width, true, Init::normal(0.02));
  proj_ = &add_child<Linear>("proj", width, width, true, Init::normal(residual_stddev));
  dropout_ = &add_child<Dropout>("dropout", dropout);
}

at::Tensor CausalSelfAttention::forward(const Tensors& inputs) {
  return (*dropout_)((*proj_)(functional::causal_attention((*qkv_)(inputs[0]), heads_)));
}

}  // namespace shardbench
