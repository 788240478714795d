#include "common/comm/nccl/load.h"
#include "common/core/error.h"

namespace shardbench::comm {

bool has_gpu_library() { return false; }

const GpuLibrary& gpu_library() {
  throw UserError(
      "this build has no nccl backend: install the CUDA toolkit, run ./shardbench setup nccl and "
      "configure with -DSHARDBENCH_NCCL=ON, or choose another backend");
}

}  // namespace shardbench::comm
