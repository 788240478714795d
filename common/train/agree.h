#pragma once

#include <cstdint>

#include "common/comm/communicator.h"

namespace shardbench::train {

/// The rule for ranks whose data have different lengths: everybody stops where the shortest stops.
struct AgreedSteps {
  std::int64_t steps = 0;    ///< what all ranks can do
  std::int64_t longest = 0;  ///< what the rank with most data could have done
  int shortest_rank = 0;     ///< the first that has no more than `steps`
};

/// Every rank says how many steps its own data last, and all get the same answer. Collective, one
/// message; to be called before the first step. `own` must not be negative.
AgreedSteps agree_on_steps(comm::Communicator& comm, std::int64_t own);

}  // namespace shardbench::train
