#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// Whether this project's own kernels, which read and write host memory, compute on `tensor`. Where
/// not, the same operation is written in ATen's (see portable.h), which every device has. The one
/// place where that is decided.
bool on_host(const at::Tensor& tensor);
bool on_host(at::Device device);

/// While it lives, nothing counts as on the host: a test of the other forms, on tensors of the CPU.
/// For the whole process, since a device's backward runs on threads of its own.
class PortableOnly {
 public:
  PortableOnly();
  ~PortableOnly();
  PortableOnly(const PortableOnly&) = delete;
  PortableOnly& operator=(const PortableOnly&) = delete;
};

}  // namespace shardbench::ops
