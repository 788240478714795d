#pragma once

#include "tests/comm/nccl/double.h"

namespace shardbench::comm {

/// An in-order queue: `executed` of `queued` nodes are done, `nodes` are the rest.
struct NcclDouble::Stream {
  std::deque<Node> nodes;
  std::uint64_t queued = 0;
  std::uint64_t executed = 0;
  bool advancing = false;
};

/// Marks a position of a stream: the one of its latest record.
struct NcclDouble::Event {
  std::thread::id owner;
  bool timed = false;
  Stream* stream = nullptr;
  std::uint64_t position = 0;
  std::int64_t passed_at = 0;  ///< ticks of the double's clock, if timed
};

/// A group that is on a stream as its `position`th node.
struct NcclDouble::Queued {
  std::shared_ptr<const Group> group;
  Stream* stream = nullptr;
  std::uint64_t position = 0;
};

struct NcclDouble::Comm {
  World* world = nullptr;
  int rank = 0;
  std::shared_ptr<const Group> pending{};  ///< called, not on its stream yet
  int looks_left = 0;
  std::vector<Queued> queued{};
  bool finalized = false;
};

/// The ranks that joined with one id.
struct NcclDouble::World {
  explicit World(int world_size) : ranks(static_cast<std::size_t>(world_size)) {}
  std::vector<Comm*> ranks;
  std::size_t joined = 0;
  std::set<int> aborted;
  std::vector<std::unique_ptr<Comm>> gone;
};

}  // namespace shardbench::comm
