#pragma once

#include <string>

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// Whether this build has a libshardbench_nccl.so to open. Loads nothing.
bool has_gpu_library();

/// Opens libshardbench_nccl.so, and with it CUDA, NCCL and LibTorch's CUDA side, on first use;
/// looks in $SHARDBENCH_GPU_LIBRARY (a file), beside the program, in its ../lib, then where the
/// loader looks. Never closed. A run that uses no GPU must not call it. Call it after fork and
/// before anything asks ATen about CUDA, since ATen looks for its CUDA side only once. Throws
/// UserError in one line when the build has none, it cannot be opened, or it is another version's.
const GpuLibrary& gpu_library();

}  // namespace shardbench::comm
