#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// A table looked up by index. Parameter: weight [rows, width]. Keeps the indices. Where the
/// strategy keeps its gradient as rows, backward hands over those of its output's gradient.
class Embedding : public Module {
 public:
  /// `by_token`: every token looks up a row (see Parameter::by_token).
  Embedding(std::int64_t rows, std::int64_t width, Init init, bool by_token = false);

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
