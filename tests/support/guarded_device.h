#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

#include "common/comm/communicator.h"

namespace shardbench::testing {

/// A device of LibTorch's whose memory the host cannot touch: a stand-in for a GPU, for tests of
/// what lies where. Its tensors are PrivateUse1's; every ATen operation on them runs on copies in
/// host memory, and between those the pages of the device are unreadable, so code that uses a
/// device pointer as if it were the host's dies of SIGSEGV. Backward runs on a thread of the
/// device's own, as it does on a GPU.
at::Device guarded_device();

/// Its memory by address, as strategies ask for it. 64-byte aligned, contents are NaN.
void* guarded_allocate(std::size_t bytes);
void guarded_free(void* data);
bool is_guarded(const void* data);
/// Copies between any two kinds of memory.
void guarded_copy(void* to, const void* from, std::size_t bytes);
/// How often the host has read the device since the program started: what waits on a GPU.
int reads_by_host();

/// `ranks` for buffers on the device: symmetric memory is the device's, and every call is carried
/// out at once on copies in host memory.
std::unique_ptr<comm::Communicator> over_guarded_device(std::unique_ptr<comm::Communicator> ranks);

}  // namespace shardbench::testing
