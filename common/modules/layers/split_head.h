#pragma once

#include <vector>

#include "common/modules/layers/linear.h"

namespace shardbench {

/// Rows [begin, end) of an output head, a unit of its own under `--units block`.
class HeadBlock : public Linear {
 public:
  HeadBlock(std::int64_t in, std::int64_t rows, Init init) : Linear(in, rows, false, init) {}
  std::string_view class_name() const override { return "HeadBlock"; }
};

/// A head without bias whose rows are cut into units (child "0", "1", ...), so that at most a part
/// of it and of its gradients is whole at a time.
class SplitHead : public Module {
 public:
  SplitHead(std::int64_t in, const std::vector<std::int64_t>& rows, Init init);
  std::string_view class_name() const override { return "SplitHead"; }

 protected:
  /// (x [..., in]) -> [..., sum of rows].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::vector<HeadBlock*> parts_;
};

}  // namespace shardbench
