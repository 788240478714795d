#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/comm/launch/control.h"
#include "common/comm/launch/group.h"

namespace shardbench::comm {

struct JoinOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{300'000};  ///< to meet, and of every later wait
  std::string extra_address;  ///< where rank 0 may be reached besides its interfaces, or ""
  ShareText share;            ///< how the ranks hear of rank 0
  /// Told at once of a rank that has gone, on a thread of its own: launchers kill the others soon
  /// after. May be empty.
  std::function<void(const AbortRecord& record)> on_lost = {};
};

/// Joins processes that somebody else started into one job: connects them, finds out which share a
/// machine (and a network namespace), and gives those one shared segment, passed over a socket, so
/// that nothing has a name that could be left behind. Every rank calls it. Throws UserError naming
/// who is missing.
std::unique_ptr<Group> join(const JoinOptions& options);

/// Options of one rank by name, to be compared with those of the others.
using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// Throws UserError, the same on every rank, naming the first value that differs between two ranks,
/// and both values. Collective.
void require_equal(Group& group, const NamedValues& values);

}  // namespace shardbench::comm
