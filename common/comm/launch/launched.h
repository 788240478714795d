#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "common/comm/launch/control.h"
#include "common/comm/launch/environment.h"
#include "common/comm/launch/group.h"
#include "common/comm/launch/ranks.h"

namespace shardbench::comm {

class MpiRuntime;

/// What makes a process started by a launcher one of its ranks.
struct Launched {
  std::shared_ptr<MpiRuntime> mpi;  ///< null unless MPI started it
  std::unique_ptr<Group> group;
  std::unique_ptr<Ranks> ranks;  ///< uses both
};

/// Opens torchrun's store (c10d::TCPStore, in common/comm/store): rank 0's text through it. Throws
/// UserError when it cannot be reached within `timeout`.
using OpenStore =
    std::function<ShareText(const LaunchEnvironment& found, std::chrono::milliseconds timeout)>;

/// Joins the other processes that the launcher started: through MPI, or through the store of
/// torchrun's variables. Collective. Throws UserError naming who is missing after `timeout`, which
/// is also the default deadline of every later wait.
/// `on_lost` as in JoinOptions, with the rank that hears of it.
Launched join_launched(
    const LaunchEnvironment& found, std::chrono::milliseconds timeout, const OpenStore& open_store,
    const std::function<void(int rank, const AbortRecord& record)>& on_lost = {});

}  // namespace shardbench::comm
