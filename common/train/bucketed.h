#pragma once

#include <deque>
#include <map>
#include <vector>

#include "common/sharding/flat.h"
#include "common/train/row_gradient.h"
#include "common/train/strategy.h"
#include "common/train/whole_weights.h"

namespace shardbench::train {

/// What strategies with whole weights and whole gradients have in common: gradients lie in buckets
/// in the order in which backward fills them, and a bucket's messages leave, in the same order on
/// every rank, as soon as it is full in the last micro-batch. Gradients are fp32; where they travel
/// in a narrower dtype, a bucket is narrowed into memory of its own for the time of its messages.
class BucketedStrategy : public Strategy {
 public:
  const Owned& owned() const final { return owned_; }
  bool replicated() const override { return true; }
  std::int64_t padding_bytes() const final;

  void before_forward(Unit& unit) override { enter(Phase::kForward, unit); }
  void after_forward(Unit&) override {}
  void before_backward(Unit& unit) override { enter(Phase::kBackward, unit); }
  void gradient_ready(Parameter& parameter) override;
  void after_backward(Unit&) override {}
  void end_of_backward() override {}

  /// All gradients, bucket after bucket.
  comm::Buffer gradient_memory() const;

 protected:
  /// Issues the messages that average one bucket, bucket_memory(index), over ranks.
  virtual std::vector<comm::Work> reduce_bucket(int index) = 0;
  /// Whether this rank steps the parameter. Where ranks differ, peers can read the weights.
  virtual bool owns(int parameter) const;

  void allocate() override;
  at::Tensor gradient_view(Parameter& parameter) override;
  void add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad) override;
  void start_step() override;
  void reduce_the_rest() override;
  void values_changed() override { weights_.update(); }

  const std::vector<sharding::Bucket>& buckets() const { return buckets_; }
  /// What the bucket's messages carry, while they are being issued.
  comm::Buffer bucket_memory(int index) const;
  /// Where the parameter's gradient lies in gradient_memory(), elements.
  std::int64_t gradient_offset(int parameter) const { return gradient_offset_[parameter]; }
  const WholeWeights& weights() const { return weights_; }

 private:
  void allocate_gradients();
  void reduce_next_bucket();
  void narrow_next_bucket(int index);
  void reduce_rows(const sharding::Bucket& bucket);
  /// Waits for the oldest narrowed bucket and takes what this rank steps back from it.
  void finish_narrow_bucket();
  /// Gradients that no op has written count as zero.
  void zero_unwritten(const sharding::Bucket& bucket);

  WholeWeights weights_;
  std::vector<sharding::Bucket> buckets_;
  std::vector<int> bucket_of_;                 ///< by parameter index; -1 if frozen
  std::vector<std::int64_t> gradient_offset_;  ///< by parameter index; -1 if frozen
  comm::SymmetricMemory gradients_;            ///< peers reduce it in place
  std::int64_t gradient_extent_ = 0;
  std::map<int, RowGradient> rows_;  ///< by parameter index: tables whose gradients travel as rows
  Owned owned_;

  std::vector<int> missing_;  ///< by bucket: gradients not yet ready in the last micro-batch
  std::vector<char> ready_;   ///< by parameter index
  int reduced_ = 0;           ///< buckets whose messages have left
  std::vector<comm::Work> reductions_;
  struct NarrowBucket {
    int index = 0;
    comm::SymmetricMemory memory;
    std::vector<comm::Work> reductions;
  };
  std::deque<NarrowBucket> narrow_;  ///< in flight, oldest first
};

}  // namespace shardbench::train
