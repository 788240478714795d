#pragma once

#include <memory>

#include "common/comm/launch/group.h"
#include "common/comm/nccl/nccl.h"

namespace shardbench::comm {

/// An nccl communicator of all processes of the group, each on a device of its own: opens
/// libshardbench_nccl.so, takes the device of this process's number on its host, and meets the
/// others through the group. Collective. `symmetric_on_host` as in NcclOptions.
/// Throws UserError as gpu_library() and choose_device() do.
std::unique_ptr<Communicator> nccl_over(Group& group, bool symmetric_on_host);

/// Throws what nccl_over would for want of a library or a device. Not collective.
void require_device(Group& group);

/// The hooks for code on `device`: LibTorch's where the library has its CUDA side, else the plain
/// ones. Makes the device current. They live as long as the process.
DeviceHooks& hooks_on(const GpuLibrary& library, int device);

}  // namespace shardbench::comm
