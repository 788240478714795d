#include "common/modules/layers/llama_attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/core/error.h"
#include "common/modules/layers/functional.h"

namespace shardbench {

GroupedQueryAttention::GroupedQueryAttention(const LlamaSizes& sizes,
                                             std::shared_ptr<RotaryTable> rotary)
    : heads_(sizes.heads), kv_heads_(sizes.kv_heads), rotary_(std::move(rotary)) {
  SHARDBENCH_CHECK(
      heads_ > 0 && sizes.width % heads_ == 0 && kv_heads_ > 0 && heads_ % kv_heads_ == 0,
      "{} heads in {} groups over width {}", heads_, kv_heads_, sizes.width);
  const std::int64_t kv_width = sizes.width / heads_ * kv_heads_;
  const Init init = Init::normal(0.02);
  q_ = &add_child<Linear>("q", sizes.width, sizes.width, sizes.qkv_bias, init);
  k_ = &add_child<Linear>("k", sizes.width, kv_width, sizes.qkv_bias, init);
  v_ = &add_child<Linear>("v", sizes.width, kv_width, sizes.qkv_bias, init);
  o_ =
      &add_child<Linear>("o", sizes.width, sizes.width, false, Init::normal(sizes.residual_stddev));
}

at::Tensor GroupedQueryAttention::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  const at::Tensor& table = rotary_->at_least(x.size(1), x.device());
  const at::Tensor q = functional::rotary((*q_)(x), table);
  const at::Tensor k = functional::rotary((*k_)(x), table);
  return (*o_)(functional::grouped_attention(q, k, (*v_)(x), heads_, kv_heads_));
}

}  // namespace shardbench
