#pragma once

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// The parts of libshardbench_nccl.so, each forwarding to one library.
CudaApi& cuda_runtime();
NcclApi& nccl_library();
ProfilerRanges& nvtx_ranges();
/// Null where it is built without LibTorch's CUDA side.
TorchCuda* torch_cuda();

}  // namespace shardbench::comm
