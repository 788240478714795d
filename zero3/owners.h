#pragma once

#include <cstdint>
#include <vector>

#include "common/comm/communicator.h"
#include "common/sharding/flat.h"
#include "common/sharding/layout.h"

namespace shardbench::zero3 {

/// What all ZeRO stages have in common here: whole tensors belong to owner ranks, so a layout's
/// parts are whole tensors, and every message has an owner at one end.

/// One message per owner with a part: full = all owners' parts, on every rank.
std::vector<comm::Work> broadcast_from_owners(comm::Communicator& comm,
                                              const sharding::ShardLayout& layout,
                                              comm::ConstBuffer shard, comm::Buffer full,
                                              comm::CallTag tag);

/// One message per owner with a part: each owner's part of `full`, averaged over ranks, goes to (or
/// is added to) its shard.
std::vector<comm::Work> reduce_to_owners(comm::Communicator& comm,
                                         const sharding::ShardLayout& layout,
                                         comm::ConstBuffer full, comm::Buffer shard,
                                         bool accumulate, comm::CallTag tag);

/// A whole tensor in memory that lies alike on every rank.
struct OwnedPlace {
  int owner = 0;
  std::int64_t offset = 0;  ///< elements
  std::int64_t count = 0;
};
using OwnedPlaces = std::vector<OwnedPlace>;

/// The layout of messages within such memory: an owner's shard is its tensors where they lie.
sharding::ShardLayout in_place_layout(const OwnedPlaces& places, int world_size);

}  // namespace shardbench::zero3
