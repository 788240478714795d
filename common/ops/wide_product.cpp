#include "common/ops/wide_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstdint>
#include <exception>

#include "common/core/error.h"
#include "common/core/simd.h"

namespace shardbench::ops {

namespace {

using at::BFloat16;

// The target is computed by blocks: kBlockOut x kBlockIn numbers of it while both factors' parts
// stay in the second-level cache.
constexpr std::int64_t kBlockOut = 32;
constexpr std::int64_t kBlockIn = 256;

/// Two neighbours along the summed dimension side by side, as the kernels read them: `second` is
/// zero where their number is odd.
std::uint32_t pair_of(std::uint16_t first, std::uint16_t second) {
  return first | static_cast<std::uint32_t>(second) << 16;
}

const std::uint16_t* bits_of(const at::Tensor& tensor) {
  return static_cast<const std::uint16_t*>(tensor.const_data_ptr());
}

/// Memory for `count` pairs.
at::Tensor pairs(std::int64_t count) {
  return at::empty({2 * count}, at::TensorOptions().dtype(at::kBFloat16));
}
std::uint32_t* pairs_in(const at::Tensor& tensor) {
  return static_cast<std::uint32_t*>(tensor.mutable_data_ptr());
}

/// Columns first to first + count of `rows` [n, width], two rows at a time: f(pair of rows, column,
/// the two numbers of the column).
template <typename F>
void for_pairs(const at::Tensor& rows, std::int64_t first, std::int64_t count, F f) {
  const std::int64_t n = rows.size(0), width = rows.size(1);
  const std::uint16_t* bits = bits_of(rows) + first;
  for (std::int64_t row = 0; row + 1 < n; row += 2) {
    const std::uint16_t* upper = bits + row * width;
    const std::uint16_t* lower = upper + width;
    for (std::int64_t i = 0; i < count; ++i) f(row / 2, i, pair_of(upper[i], lower[i]));
  }
  if (n % 2 == 0) return;
  const std::uint16_t* last = bits + (n - 1) * width;
  for (std::int64_t i = 0; i < count; ++i) f(n / 2, i, pair_of(last[i], 0));
}

/// x [rows, in], by blocks of columns.
at::Tensor paired(const at::Tensor& x) {
  const std::int64_t half = (x.size(0) + 1) / 2, in = x.size(1);
  at::Tensor memory = pairs(half * in);
  for (std::int64_t first = 0; first < in; first += kBlockIn) {
    const std::int64_t count = std::min(kBlockIn, in - first);
    std::uint32_t* block = pairs_in(memory) + half * first;
    for_pairs(x, first, count, [&](std::int64_t row, std::int64_t i, std::uint32_t pair) {
      block[row * count + i] = pair;
    });
  }
  return memory;
}

}  // namespace

bool has_wide_product(DType dtype) {
  if (dtype != DType::kBFloat16 || !has_bf16_products()) return false;
  static const bool runs = [] {  // LibTorch tells only by refusing
    const at::Tensor two = at::full({32, 32}, 2.0, at::TensorOptions().dtype(at::kBFloat16));
    const at::Tensor result = at::zeros({32, 32}, at::TensorOptions().dtype(at::kFloat));
    try {
      wide_weight_grad(two, two, result, /*accumulate=*/false);
    } catch (const std::exception&) {
      return false;
    }
    return result.eq(128.0).all().item<bool>();
  }();
  return runs;
}

void wide_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                      bool accumulate) {
  SHARDBENCH_CHECK(target.is_contiguous() && target.scalar_type() == at::kFloat,
                   "a wide product goes into contiguous fp32");
  const at::Tensor g = grad.contiguous();
  const std::int64_t out = target.size(0), in = target.size(1);
  const std::int64_t rows = (g.size(0) + 1) / 2 * 2;
  if (rows == 0 && !accumulate) at::Tensor(target).zero_();
  if (rows == 0 || out == 0 || in == 0) return;
  const at::Tensor packed = paired(x.contiguous());
  const auto* right = packed.const_data_ptr<BFloat16>();
  auto* to = target.mutable_data_ptr<float>();
  const std::int64_t blocks = (out + kBlockOut - 1) / kBlockOut;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor turned = pairs(kBlockOut * rows / 2);  // of grad^T: [kBlockOut, rows]
    const auto* left = turned.const_data_ptr<BFloat16>();
    for (std::int64_t first = begin * kBlockOut; first < std::min(out, end * kBlockOut);
         first += kBlockOut) {
      const std::int64_t count = std::min(kBlockOut, out - first);
      std::uint32_t* block = pairs_in(turned);
      for_pairs(g, first, count, [&](std::int64_t row, std::int64_t i, std::uint32_t pair) {
        block[i * (rows / 2) + row] = pair;
      });
      for (std::int64_t column = 0; column < in; column += kBlockIn) {
        const std::int64_t width = std::min(kBlockIn, in - column);
        at::native::cpublas::brgemm(count, width, rows, rows, width, in, accumulate, left,
                                    right + rows * column, to + first * in + column);
      }
    }
    at::native::cpublas::brgemm_release();
  });
}

}  // namespace shardbench::ops
