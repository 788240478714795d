#include "common/modules/flat_memory.h"

#include <ATen/ATen.h>

#include <cstring>

#include "common/core/error.h"
#include "common/ops/dtype.h"
#include "common/ops/on_host.h"

namespace shardbench::flat {

namespace {

std::size_t bytes_of(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

at::Tensor row(const float* data, std::int64_t count, at::Device device) {
  return view(data, {count}, DType::kFloat32, device);
}

}  // namespace

at::Tensor view(const void* data, at::IntArrayRef dims, DType dtype, at::Device device) {
  // Named, so that the device is not asked whose memory it is.
  return at::for_blob(const_cast<void*>(data), dims)
      .options(at::TensorOptions().dtype(ops::scalar_type(dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

float* address(const at::Tensor& tensor) {
  SHARDBENCH_CHECK(tensor.scalar_type() == at::kFloat, "flat memory of another dtype");
  return static_cast<float*>(tensor.mutable_data_ptr());
}

void zero(void* data, std::int64_t count, DType dtype, at::Device device) {
  if (count == 0) return;
  if (ops::on_host(device)) {
    std::memset(data, 0, bytes_of(count, dtype));
  } else {
    view(data, {count}, dtype, device).zero_();
  }
}

void copy(float* to, const float* from, std::int64_t count, at::Device device) {
  if (count == 0) return;
  if (ops::on_host(device)) {
    std::memcpy(to, from, bytes_of(count, DType::kFloat32));
  } else {
    row(to, count, device).copy_(row(from, count, device));
  }
}

void write(float* to, const float* from, std::int64_t count, at::Device device) {
  if (count > 0) row(to, count, device).copy_(row(from, count, at::kCPU));
}

HostCopy::HostCopy(const float* data, std::int64_t count, at::Device device) : data_(data) {
  if (device.is_cpu()) return;
  copy_ = row(data, count, device).to(at::kCPU);
  data_ = copy_.const_data_ptr<float>();
}

}  // namespace shardbench::flat
