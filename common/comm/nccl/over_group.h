#pragma once

#include <memory>

#include "common/comm/launch/group.h"
#include "common/comm/launch/ranks.h"
#include "common/comm/nccl/nccl.h"

namespace shardbench::comm {

/// An nccl communicator of all processes of the group, each on a device of its own: opens
/// libshardbench_nccl.so, takes the device of this process's number on its host, and meets the
/// others through the group. Collective. Where ranks compute `on_device`, symmetric memory is the
/// device's and the transport names it; else it is the host's.
/// Throws UserError as gpu_library() and choose_device() do, and for on_device where the library
/// was built without LibTorch's CUDA side.
Transport nccl_transport(Group& group, bool on_device);
/// The same on this process's device, with a job of one rank.
Transport nccl_transport_alone(Group& group, const std::shared_ptr<Job>& job);

/// Throws what nccl_transport would for want of a library or a device. Not collective.
void require_device(Group& group);

/// The hooks for code on `device`: LibTorch's where the library has its CUDA side, else the plain
/// ones. Makes the device current. They live as long as the process.
DeviceHooks& hooks_on(const GpuLibrary& library, int device);

}  // namespace shardbench::comm
