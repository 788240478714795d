#include "common/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <cmath>
#include <vector>

#include "common/core/error.h"
#include "common/ops/on_host.h"
#include "common/ops/portable.h"

namespace shardbench::ops {

namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::uint64_t sample_key(const ForwardContext& context, std::uint64_t op_id, std::int64_t sample) {
  std::uint64_t key = mix(context.seed + kGolden);
  key = mix(key ^ (static_cast<std::uint64_t>(context.step) + kGolden));
  key = mix(key ^ op_id);
  return mix(key ^ (static_cast<std::uint64_t>(context.first_sample + sample) + kGolden));
}

/// One 64-bit draw decides two neighbouring elements, 32 bits each.
template <typename T, typename Factor>
void drop_sample(const T* in, T* out, std::int64_t count, std::uint64_t key,
                 std::uint64_t threshold, Factor scale) {
  const auto kept = [&](T value, std::uint64_t bits) {
    return static_cast<T>(static_cast<Factor>(value) * (bits >= threshold ? scale : Factor{0}));
  };
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint64_t draw = mix(key + static_cast<std::uint64_t>(i / 2) * kGolden);
    out[i] = kept(in[i], draw & 0xFFFFFFFFull);
    if (i + 1 < count) out[i + 1] = kept(in[i + 1], draw >> 32);
  }
}

}  // namespace

std::uint64_t dropout_op_id(std::string_view path) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return mix(hash);
}

at::Tensor dropout(const at::Tensor& x, double p, const ForwardContext& context,
                   std::uint64_t op_id) {
  SHARDBENCH_CHECK(p >= 0 && p < 1, "dropout probability {}", p);
  SHARDBENCH_CHECK(x.dim() >= 1, "dropout needs a dimension of samples");
  const std::int64_t samples = x.size(0);
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(p, 32));
  if (!on_host(x)) {
    std::vector<std::int64_t> keys;
    for (std::int64_t s = 0; s < samples; ++s) {
      keys.push_back(static_cast<std::int64_t>(sample_key(context, op_id, s)));
    }
    return portable::dropout(x, p, keys, static_cast<std::int64_t>(threshold));
  }
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in);
  const std::int64_t count = samples == 0 ? 0 : in.numel() / samples;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "dropout", [&] {
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for (std::int64_t s = 0; s < samples; ++s) {
      drop_sample(from + s * count, to + s * count, count, sample_key(context, op_id, s), threshold,
                  static_cast<at::opmath_type<scalar_t>>(1.0 / (1.0 - p)));
    }
  });
  return out;
}

}  // namespace shardbench::ops
