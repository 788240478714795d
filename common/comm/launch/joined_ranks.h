#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/comm/launch/group.h"
#include "common/comm/launch/ranks.h"

namespace shardbench::comm {

/// Backends beyond one host that the launched processes can have. Each may be empty; it then gives
/// the reason instead. Both are collective over the group.
struct WideBackends {
  std::function<Transport(Group&)> mpi;
  std::string why_no_mpi;
  std::function<Transport(Group&, bool on_device)> nccl;
  /// For this process by itself, computing on its device, with a job of one rank.
  std::function<Transport(Group&, const std::shared_ptr<Job>&)> device_alone;
  std::function<void(Group&)> require_nccl;  ///< throws UserError where there is no device
  std::string why_no_nccl;
};

/// The ranks of a group: each run happens in the launched processes themselves, one after the
/// other. Once a run has failed the job has ended, and later runs fail by the same record. Progress
/// is not told: launchers pass no terminal on. `group` must outlive it.
std::unique_ptr<Ranks> joined_ranks(Group& group, WideBackends wide);

}  // namespace shardbench::comm
