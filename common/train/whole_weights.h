#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/sharding/flat.h"

namespace shardbench::train {

/// Weights that every rank keeps whole: one flat memory in the dtype that operations compute in,
/// bound to the model's parameters for life. Where that is not fp32 there are fp32 masters beside
/// it, of what this rank's optimizer steps.
class WholeWeights {
 public:
  struct Options {
    DType dtype = DType::kFloat32;
    std::vector<sharding::Range> stepped;  ///< element range of every parameter
    comm::Communicator* peers = nullptr;   ///< can read the memory directly; null: private memory
  };
  /// Draws initial values into zeroed fp32 memory of that layout, on the model's device.
  using Fill = std::function<void(const sharding::FlatLayout&, float*)>;

  /// Allocates, fills and makes every parameter of the model usable.
  void allocate(const Model& model, const Options& options, const Fill& fill);
  /// The optimizer has changed its values: brings them to what operations read.
  void update();

  const sharding::FlatLayout& layout() const { return layout_; }
  comm::Buffer memory() const { return {data_, layout_.extent, dtype_}; }
  /// Where the optimizer finds a parameter that this rank steps.
  float* stepped(int parameter) const;
  /// Alignment padding, bytes.
  std::int64_t padding_bytes() const;

 private:
  void allocate_memory(comm::Communicator* peers);
  void convert_drawn(const Model& model, std::vector<sharding::Range> stepped, const Fill& fill);
  void* of(int parameter) const;

  DType dtype_ = DType::kFloat32;
  at::Device device_ = at::kCPU;
  sharding::FlatLayout layout_;
  at::Tensor private_;
  comm::SymmetricMemory shared_;
  void* data_ = nullptr;
  sharding::FlatLayout master_layout_;  ///< trainable ones only; empty in fp32
  at::Tensor masters_;
};

}  // namespace shardbench::train
