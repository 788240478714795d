#pragma once

#include "common/comm/communicator.h"
#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// What moves device memory to and from the host on one rank, the double's or real.
struct DeviceContext {
  CudaApi& cuda;
  DeviceHooks& hooks;
  bool accumulates = true;  ///< whether the hooks can add
};

/// Every collective x dtype x operation x awkward layout of one rank, exact: small whole numbers,
/// so that the order of sums makes no difference (an average does over ranks that are no power of
/// two, and is compared only where `averages`). In device memory, or in the host's. EXPECTs.
void expect_values(Communicator& comm, DeviceContext device, bool on_host, bool averages);

}  // namespace shardbench::comm
