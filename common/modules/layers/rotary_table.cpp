#include "common/modules/layers/rotary_table.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/ops/rotary.h"

namespace shardbench {

RotaryTable::RotaryTable(std::int64_t size, double theta) : size_(size), theta_(theta) {
  SHARDBENCH_CHECK(size > 0 && size % 2 == 0, "rotary embedding of heads of {} elements", size);
}

const at::Tensor& RotaryTable::at_least(std::int64_t length, at::Device device) {
  if (!table_.defined() || table_.size(0) < length || table_.device() != device) {
    table_ = ops::rotary_table(length, size_, theta_, at::kFloat).to(device);
    memory::retag(table_, memory::Category::kOther);
  }
  return table_;
}

}  // namespace shardbench
