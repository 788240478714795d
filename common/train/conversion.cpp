#include "common/train/conversion.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/modules/flat_memory.h"
#include "common/ops/dtype.h"
#include "common/ops/on_host.h"
#include "common/ops/store.h"

namespace shardbench::train {

namespace {

constexpr std::int64_t kGrain = 1 << 16;  ///< elements that are worth a thread

comm::ConstBuffer part_of(const comm::ConstBuffer& buffer, std::int64_t begin, std::int64_t end) {
  const auto bytes = begin * static_cast<std::int64_t>(size_of(buffer.dtype));
  return {static_cast<const std::byte*>(buffer.data) + bytes, end - begin, buffer.dtype};
}

at::Tensor view_of(const comm::ConstBuffer& buffer, at::Device device) {
  return flat::view(buffer.data, {buffer.count}, buffer.dtype, device);
}

}  // namespace

void convert_on_threads(comm::ConstBuffer from, comm::Buffer to, at::Device device) {
  if (!ops::on_host(device)) {
    if (from.count > 0)
      view_of({to.data, from.count, to.dtype}, device).copy_(view_of(from, device));
    return;
  }
  at::parallel_for(0, from.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const comm::ConstBuffer target = part_of(to, begin, end);
    comm::convert(part_of(from, begin, end),
                  {const_cast<void*>(target.data), target.count, target.dtype});
  });
}

void widen_on_threads(comm::ConstBuffer from, float* to, bool add, at::Device device) {
  if (!ops::on_host(device)) {
    if (from.count == 0) return;
    ops::store(view_of({to, from.count, DType::kFloat32}, device), view_of(from, device), add);
    return;
  }
  at::parallel_for(0, from.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    comm::widen_into(part_of(from, begin, end), to + begin, add);
  });
}

void round_as(DType dtype, const at::Tensor& tensor) {
  if (dtype == DType::kFloat32) return;
  if (!ops::on_host(tensor)) {
    at::Tensor(tensor).copy_(tensor.to(ops::scalar_type(dtype)));
    return;
  }
  auto* const values = tensor.mutable_data_ptr<float>();
  const std::int64_t count = tensor.numel();
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(count, kGrain)) * size_of(dtype));
  for (std::int64_t begin = 0; begin < count; begin += kGrain) {
    const std::int64_t n = std::min(kGrain, count - begin);
    const comm::Buffer narrow{block.data(), n, dtype};
    comm::convert({values + begin, n, DType::kFloat32}, narrow);
    comm::widen_into(narrow, values + begin, /*add=*/false);
  }
}

}  // namespace shardbench::train
