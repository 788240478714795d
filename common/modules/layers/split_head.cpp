#include "common/modules/layers/split_head.h"

#include <ATen/ATen.h>

#include <string>

namespace shardbench {

SplitHead::SplitHead(std::int64_t in, const std::vector<std::int64_t>& rows, Init init) {
  for (const std::int64_t part_rows : rows) {
    parts_.push_back(&add_child<HeadBlock>(std::to_string(parts_.size()), in, part_rows, init));
  }
}

at::Tensor SplitHead::forward(const Tensors& inputs) {
  Tensors outputs;
  for (HeadBlock* part : parts_) outputs.push_back((*part)(inputs[0]));
  return at::cat(outputs, -1);
}

}  // namespace shardbench
