// Stages 1 and 2: whole weights, owners step them and send them around.

#include <fmt/format.h>

#include "zero3/owners.h"
#include "zero3/strategy.h"

namespace shardbench::zero3 {

namespace {

/// Which of the whole weights each owner changes in the optimizer: its trainable tensors.
sharding::ShardLayout changed_by_owner(const sharding::ModelShape& model,
                                       const sharding::FlatLayout& flat,
                                       const std::vector<int>& owner, int world_size) {
  OwnedPlaces places;
  for (const sharding::FlatGroup& group : flat.groups) {
    if (!group.requires_grad) continue;
    for (const sharding::Piece& piece : group.pieces) {
      places.push_back(
          {owner[piece.parameter], piece.offset, model.parameters[piece.parameter].numel()});
    }
  }
  return in_place_layout(places, world_size);
}

void share_changed_weights(comm::Communicator& comm, const train::WholeWeights& weights,
                           const sharding::ShardLayout& parts, comm::CallTag tag) {
  const comm::Buffer memory = weights.memory();
  for (comm::Work& work : broadcast_from_owners(comm, parts, memory, memory, tag)) work.wait();
}

}  // namespace

void Zero1::allocate() {
  owner_ = sharding::partition_owners(model().shape(), comm().world_size());
  BucketedStrategy::allocate();
  const sharding::ModelShape& shape = model().shape();
  for (const sharding::Bucket& bucket : buckets()) {
    OwnedPlaces places;
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const int p = bucket.parameters[i];
      places.push_back({owner_[p], bucket.offsets[i], shape.parameters[p].numel()});
    }
    bucket_parts_.push_back(in_place_layout(places, comm().world_size()));
  }
  weight_parts_ = changed_by_owner(shape, weights().layout(), owner_, comm().world_size());
}

bool Zero1::owns(int parameter) const { return owner_[parameter] == comm().rank(); }

// [hooks]
std::vector<comm::Work> Zero1::reduce_bucket(int index) {
  const comm::Buffer bucket = bucket_memory(index);  // the owner's part is averaged in place
  return reduce_to_owners(comm(), bucket_parts_[index], bucket, bucket, /*accumulate=*/false,
                          tag(fmt::format("bucket {}", index)));
}

void Zero1::values_changed() {
  BucketedStrategy::values_changed();
  share_changed_weights(comm(), weights(), weight_parts_, tag("weights"));
}

void Zero2::before_forward(Unit& unit) { enter(Phase::kForward, unit); }

void Zero2::before_backward(Unit& unit) {
  enter(Phase::kBackward, unit);
  gradients_.enter(unit);
}

at::Tensor Zero2::gradient_view(Parameter& parameter) { return gradients_.view(parameter); }

void Zero2::gradient_ready(Parameter& parameter) { gradients_.gradient_ready(parameter); }

void Zero2::after_backward(Unit& unit) {
  gradients_.reduce_if_complete(unit, /*also_unwritten=*/true);
}

void Zero2::values_changed() {
  weights_.update();
  share_changed_weights(comm(), weights_, weight_parts_, tag("weights"));
}
// [/hooks]

void Zero2::add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad) {
  gradients_.add_rows(parameter, indices, grad);
}

void Zero2::allocate() {
  const sharding::ModelShape& shape = model().shape();
  const int world_size = comm().world_size();
  const std::vector<int> owner = sharding::partition_owners(shape, world_size);
  weights_.allocate(
      model(),
      {options().compute_dtype, sharding::keep_owned(shape, owner, comm().rank()), &comm()},
      [this](const sharding::FlatLayout& layout, float* to) { fill_initial_values(layout, to); });
  weight_parts_ = changed_by_owner(shape, weights_.layout(), owner, world_size);

  std::vector<sharding::FlatLayout> by_rank;
  for (int rank = 0; rank < world_size; ++rank) {
    by_rank.push_back(sharding::flatten(shape, sharding::keep_owned(shape, owner, rank)));
  }
  gradients_.allocate(model(), comm(), by_rank, options(),
                      [this](train::UnitGradients& unit, comm::ConstBuffer full, comm::Buffer shard,
                             bool accumulate) {
                        return reduce_to_owners(comm(), unit.layout, full, shard, accumulate,
                                                tag(unit.unit->name));
                      });
  owned_ = gradients_.owned(
      model(), [this](const sharding::Piece& piece) { return weights_.stepped(piece.parameter); });
}

std::int64_t Zero2::padding_bytes() const {
  return weights_.padding_bytes() + gradients_.padding_bytes();
}

void Zero2::start_step() { gradients_.start_step(); }

void Zero2::reduce_the_rest() { gradients_.finish(); }

void register_zero1(train::Registry& registry) {
  registry.add({"zero1", "optimizer state at owner ranks; reduce to the owner, broadcast weights",
                train::AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kZero1,
                [] { return std::make_unique<Zero1>(); }});
}

void register_zero2(train::Registry& registry) {
  registry.add({"zero2", "as zero1, with gradients at their owners only",
                train::AccumulationOrder::kRanksFirst, sharding::FormulaKind::kZero2,
                [] { return std::make_unique<Zero2>(); }});
}

}  // namespace shardbench::zero3
