#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/sharding/flat.h"
#include "common/train/strategy.h"

namespace shardbench::train {

/// What strategies that keep everything on every rank have in common: whole weights bound for
/// life, and whole gradients in bucket order. Used as it is, it is the one-process strategy
/// `single`: nothing is ever sent.
class ReplicatedStrategy : public Strategy {
 public:
  const Owned& owned() const final { return owned_; }
  bool replicated() const final { return true; }
  std::int64_t padding_bytes() const final;

  void before_forward(Unit& unit) override { enter(Phase::kForward, unit); }
  void after_forward(Unit&) override {}
  void before_backward(Unit& unit) override { enter(Phase::kBackward, unit); }
  void gradient_ready(Parameter&) override {}
  void after_backward(Unit&) override {}
  void end_of_backward() override {}

  /// All gradients, bucket after bucket.
  comm::Buffer gradient_memory() const;

 protected:
  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void reduce_the_rest() override;

  const std::vector<sharding::Bucket>& buckets() const { return buckets_; }
  comm::Buffer bucket_memory(const sharding::Bucket& bucket) const;
  /// Gradients that no op has written count as zero.
  void zero_unwritten(const sharding::Bucket& bucket);

 private:
  std::vector<sharding::Bucket> buckets_;
  std::vector<std::int64_t> gradient_offset_;  ///< by parameter index; -1 if frozen
  sharding::FlatLayout layout_;
  at::Tensor values_;
  comm::SymmetricMemory gradients_;  ///< peers reduce it in place
  std::int64_t gradient_extent_ = 0;
  Owned owned_;
};

}  // namespace shardbench::train
