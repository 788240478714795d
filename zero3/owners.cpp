#include "zero3/owners.h"

#include <utility>

namespace shardbench::zero3 {

// [hooks]
std::vector<comm::Work> broadcast_from_owners(comm::Communicator& comm,
                                              const sharding::ShardLayout& layout,
                                              comm::ConstBuffer shard, comm::Buffer full,
                                              comm::CallTag tag) {
  std::vector<comm::Work> works;
  for (int owner = 0; owner < comm.world_size(); ++owner) {
    if (layout.count(owner) == 0) continue;
    works.push_back(comm.broadcast(layout, owner, shard, full, tag));
  }
  return works;
}

std::vector<comm::Work> reduce_to_owners(comm::Communicator& comm,
                                         const sharding::ShardLayout& layout,
                                         comm::ConstBuffer full, comm::Buffer shard,
                                         bool accumulate, comm::CallTag tag) {
  std::vector<comm::Work> works;
  for (int owner = 0; owner < comm.world_size(); ++owner) {
    if (layout.count(owner) == 0) continue;
    works.push_back(
        comm.reduce(layout, owner, full, shard, comm::ReduceOp::kAverage, accumulate, tag));
  }
  return works;
}
// [/hooks]

sharding::ShardLayout in_place_layout(const OwnedPlaces& places, int world_size) {
  std::vector<std::vector<sharding::Segment>> by_rank(world_size);
  for (const OwnedPlace& place : places) {
    if (place.count == 0) continue;
    by_rank[place.owner].push_back({place.offset, place.offset, place.count});
  }
  return sharding::ShardLayout(std::move(by_rank));
}

}  // namespace shardbench::zero3
