#include "common/comm/nccl/link.h"

#include <utility>

namespace shardbench::comm {

NcclCode NcclLink::start(int world_size, const std::string& id, int rank) {
  const std::lock_guard lock(mutex_);
  return api_.init_rank(comm_, world_size, id, rank);
}

NcclCode NcclLink::call(const std::function<NcclCode(NcclHandle)>& issue) {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr ? NcclCode::kInvalidUsage : issue(comm_);
}

NcclCode NcclLink::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return NcclCode::kInvalidUsage;
  NcclCode state = NcclCode::kSuccess;
  const NcclCode code = api_.async_error(comm_, state);
  return code == NcclCode::kSuccess ? state : code;
}

std::string NcclLink::describe(NcclCode code) {
  const std::lock_guard lock(mutex_);
  return api_.describe(code, comm_);
}

void NcclLink::abort() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) api_.abort(std::exchange(comm_, nullptr));
}

NcclCode NcclLink::destroy() {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr ? NcclCode::kSuccess : api_.destroy(std::exchange(comm_, nullptr));
}

}  // namespace shardbench::comm
