#pragma once

#include <memory>

#include "common/modules/layers/linear.h"
#include "common/modules/layers/rotary_table.h"
#include "common/modules/module.h"

namespace shardbench {

/// Sizes of a Llama block that its parts share.
struct LlamaSizes {
  std::int64_t width;
  std::int64_t heads;
  std::int64_t kv_heads;  ///< divides heads
  std::int64_t feed_forward;
  bool qkv_bias = false;
  double norm_eps = 1e-5;
  double residual_stddev = 0.02;  ///< of the matrices that feed the residual stream
};

/// Causal self-attention as in Llama: q, k and v (Linear), rotary position embedding of q and k,
/// attention in which heads / kv_heads queries share keys and values, o (Linear).
class GroupedQueryAttention : public Module {
 public:
  /// `rotary` is shared by all layers of a model.
  GroupedQueryAttention(const LlamaSizes& sizes, std::shared_ptr<RotaryTable> rotary);

  std::string_view class_name() const override { return "GroupedQueryAttention"; }

 protected:
  /// (x [B, T, width]) -> [B, T, width].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::shared_ptr<RotaryTable> rotary_;
  Linear* q_;
  Linear* k_;
  Linear* v_;
  Linear* o_;
};

}  // namespace shardbench
