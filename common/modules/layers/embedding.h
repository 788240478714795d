#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// A table looked up by index. Parameter: weight [rows, width]. Keeps the indices.
class Embedding : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, Init init);

  std::string_view class_name() const override { return "Embedding"; }
  /// For a layer that shares it.
  Parameter& weight() { return *weight_; }

 protected:
  /// (indices int64 [...]) -> [..., width].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Parameter* weight_;
};

}  // namespace shardbench
