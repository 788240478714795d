#include "common/train/agree.h"

#include <algorithm>
#include <vector>

#include "common/core/error.h"

namespace shardbench::train {

AgreedSteps agree_on_steps(comm::Communicator& comm, std::int64_t own) {
  SHARDBENCH_CHECK_GE(own, 0);
  std::vector<std::int64_t> all(comm.world_size(), 0);
  all[comm.rank()] = own;
  comm.all_reduce({all.data(), comm.world_size(), DType::kInt64}, comm::ReduceOp::kMax,
                  {"steps of each rank's data", Phase::kMetrics})
      .wait_released();
  const auto shortest = std::min_element(all.begin(), all.end());
  return {*shortest, *std::max_element(all.begin(), all.end()),
          static_cast<int>(shortest - all.begin())};
}

}  // namespace shardbench::train
