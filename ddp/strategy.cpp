#include "ddp/strategy.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <utility>

#include "common/core/error.h"

namespace shardbench::ddp {

void Ddp::allocate() {
  ReplicatedStrategy::allocate();
  bucket_of_.assign(model().parameters().size(), -1);
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    for (int parameter : buckets()[b].parameters) bucket_of_[parameter] = static_cast<int>(b);
  }
}

// [hooks]
void Ddp::start_step() {
  reductions_.clear();
  ready_.assign(bucket_of_.size(), 0);
  missing_.clear();
  for (const sharding::Bucket& bucket : buckets()) {
    missing_.push_back(static_cast<int>(bucket.parameters.size()));
  }
}

at::Tensor Ddp::gradient_view(Parameter& parameter) {
  SHARDBENCH_CHECK(bucket_of_[parameter.index()] >= static_cast<int>(reductions_.size()),
                   "gradient of {} is written after its bucket was reduced; announce several "
                   "backward passes with begin_micro_batch",
                   parameter.name());
  return ReplicatedStrategy::gradient_view(parameter);
}

void Ddp::gradient_ready(Parameter& parameter) {
  if (!last_micro_batch()) return;  // keep adding up; one reduction per step
  if (std::exchange(ready_[parameter.index()], 1) == 0) --missing_[bucket_of_[parameter.index()]];
  // Buckets leave in the same order on every rank, whatever order gradients come in.
  while (reductions_.size() < buckets().size() && missing_[reductions_.size()] == 0) {
    reduce_next_bucket();
  }
}

void Ddp::reduce_the_rest() {
  while (reductions_.size() < buckets().size()) {  // they hold parameters that were not used
    zero_unwritten(buckets()[reductions_.size()]);
    reduce_next_bucket();
  }
  for (comm::Work& work : reductions_) work.wait();
}

void Ddp::reduce_next_bucket() {
  reductions_.push_back(reduce_bucket(static_cast<int>(reductions_.size())));
}

comm::Work Ddp::reduce_bucket(int index) {
  return comm().all_reduce(bucket_memory(buckets()[index]), comm::ReduceOp::kAverage,
                           tag(fmt::format("bucket {}", index)));
}
// [/hooks]

void register_strategy(train::Registry& registry) {
  registry.add({"ddp", "everything on every rank; gradients averaged by all-reduce of buckets",
                train::AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kDdp,
                [] { return std::make_unique<Ddp>(); }});
}

}  // namespace shardbench::ddp
