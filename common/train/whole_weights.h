#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/sharding/flat.h"

namespace shardbench::train {

/// Weights that every rank keeps whole: one flat memory, bound to the model's parameters for life.
class WholeWeights {
 public:
  /// Allocates, zeroed. With `peers` peers can read the memory directly (null: private memory).
  void allocate(const Model& model, comm::Communicator* peers);
  /// Makes every parameter of the model usable.
  void bind(const Model& model);

  const sharding::FlatLayout& layout() const { return layout_; }
  float* data() const { return data_; }
  comm::Buffer memory() const { return {data_, layout_.extent, DType::kFloat32}; }
  /// Where a parameter lies.
  float* of(int parameter) const;
  /// Alignment padding, bytes.
  std::int64_t padding_bytes() const { return 4 * (layout_.extent - layout_.elements); }

 private:
  sharding::FlatLayout layout_;
  at::Tensor private_;
  comm::SymmetricMemory shared_;
  float* data_ = nullptr;
};

}  // namespace shardbench::train
