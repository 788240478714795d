#include "common/train/conversion.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace shardbench::train {

namespace {

constexpr std::int64_t kGrain = 1 << 16;  ///< elements that are worth a thread

comm::ConstBuffer part_of(const comm::ConstBuffer& buffer, std::int64_t begin, std::int64_t end) {
  const auto bytes = begin * static_cast<std::int64_t>(size_of(buffer.dtype));
  return {static_cast<const std::byte*>(buffer.data) + bytes, end - begin, buffer.dtype};
}

}  // namespace

void convert_on_threads(comm::ConstBuffer from, comm::Buffer to) {
  at::parallel_for(0, from.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const comm::ConstBuffer target = part_of(to, begin, end);
    comm::convert(part_of(from, begin, end),
                  {const_cast<void*>(target.data), target.count, target.dtype});
  });
}

void widen_on_threads(comm::ConstBuffer from, float* to, bool add) {
  at::parallel_for(0, from.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    comm::widen_into(part_of(from, begin, end), to + begin, add);
  });
}

void round_as(DType dtype, float* values, std::int64_t count) {
  if (dtype == DType::kFloat32) return;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(count, kGrain)) * size_of(dtype));
  for (std::int64_t begin = 0; begin < count; begin += kGrain) {
    const std::int64_t n = std::min(kGrain, count - begin);
    const comm::Buffer narrow{block.data(), n, dtype};
    comm::convert({values + begin, n, DType::kFloat32}, narrow);
    comm::widen_into(narrow, values + begin, /*add=*/false);
  }
}

}  // namespace shardbench::train
