#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/sharding/flat.h"

namespace shardbench::train {

/// All weights of a model in one block that every rank reads where it lies: each rank writes what
/// it keeps and has that much booked, so unsharding moves nothing.
class InPlaceWeights {
 public:
  /// Collective. `kept` by this rank; the block is of `dtype`. Throws UserError where ranks share
  /// no memory.
  void allocate(const Model& model, comm::Communicator& comm,
                const std::vector<sharding::Range>& kept, DType dtype);

  /// What this rank keeps, by its place in the block.
  const sharding::FlatLayout& own() const { return own_; }
  void* data() const { return block_.data(); }
  /// The whole tensor of a parameter, 64-byte aligned.
  void* of(int parameter) const;

  /// Writes this rank's part from fp32 `masters` that lie as `layout` says.
  void convert(const sharding::FlatLayout& layout, const float* masters) const;
  /// Returns when every rank has written its part.
  void publish() const;

 private:
  comm::Communicator* comm_ = nullptr;
  DType dtype_ = DType::kFloat32;
  sharding::FlatLayout whole_;
  sharding::FlatLayout own_;
  comm::SymmetricMemory block_;
};

}  // namespace shardbench::train
