#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/core/dtype.h"

namespace shardbench {

/// Flat memory of one device by its address: what strategies keep and optimizers step. Nothing here
/// owns memory. On the host the bytes are touched at once; on a device all of it is queued on the
/// current stream, and only copies between host and device wait.
namespace flat {

/// A tensor over memory of the caller, contiguous.
at::Tensor view(const void* data, at::IntArrayRef dims, DType dtype, at::Device device);

/// Where an fp32 tensor's elements lie on its device.
float* address(const at::Tensor& tensor);

void zero(void* data, std::int64_t count, DType dtype, at::Device device);
/// Within one device.
void copy(float* to, const float* from, std::int64_t count, at::Device device);
/// From host memory.
void write(float* to, const float* from, std::int64_t count, at::Device device);

/// Flat fp32 memory to be read by the host: as it lies where that can, else a copy there.
class HostCopy {
 public:
  HostCopy(const float* data, std::int64_t count, at::Device device);
  const float* data() const { return data_; }

 private:
  at::Tensor copy_;
  const float* data_;
};

}  // namespace flat

}  // namespace shardbench
