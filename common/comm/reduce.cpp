#include "common/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/core/error.h"
#include "common/core/half.h"
#include "common/core/simd.h"

namespace shardbench::comm {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements: accumulator and one source stay in L1

using Sources = std::span<const void* const>;
using Destinations = std::span<void* const>;

/// How one dtype is stored and what it is added up in.
struct Float64 {
  using Stored = double;
  using Sum = double;
  [[gnu::always_inline]] static double load(double value) { return value; }
  [[gnu::always_inline]] static double store(double value) { return value; }
};
struct Float32 {
  using Stored = float;
  using Sum = float;
  [[gnu::always_inline]] static float load(float value) { return value; }
  [[gnu::always_inline]] static float store(float value) { return value; }
};
struct Int64 {
  using Stored = std::int64_t;
  using Sum = std::int64_t;
  [[gnu::always_inline]] static std::int64_t load(std::int64_t value) { return value; }
  [[gnu::always_inline]] static std::int64_t store(std::int64_t value) { return value; }
};
struct Brain {
  using Stored = BFloat16;
  using Sum = float;
  [[gnu::always_inline]] static float load(BFloat16 value) { return widen(value); }
  [[gnu::always_inline]] static BFloat16 store(float value) { return narrow_bfloat16(value); }
};
struct Half {
  using Stored = Float16;
  using Sum = float;
  [[gnu::always_inline]] static float load(Float16 value) { return widen(value); }
  [[gnu::always_inline]] static Float16 store(float value) { return narrow_float16(value); }
};

template <bool kMaximum, typename Sum>
[[gnu::always_inline]] inline Sum combine(Sum a, Sum b) {
  if constexpr (!kMaximum) {
    return a + b;
  } else {
    // A NaN on either side stays: b is taken when it is one, and never replaces one.
    return (static_cast<int>(b > a) | static_cast<int>(b != b)) != 0 ? b : a;
  }
}

template <typename Type>
using Stored = typename Type::Stored;
template <typename Type>
using Sum = typename Type::Sum;

/// The last step for one element: the average's factor, then rounding, or adding to what is there.
template <typename Type, bool kAccumulate>
[[gnu::always_inline]] inline void finish(Sum<Type> value, Sum<Type> scale, Stored<Type>& out) {
  if constexpr (!std::is_same_v<Type, Int64>) value *= scale;  // by 1 changes nothing
  if constexpr (kAccumulate) value = Type::load(out) + value;
  out = Type::store(value);
}

/// Element `i` of `kSources` sources, from the first one on.
template <typename Type, bool kMaximum, int kSources>
[[gnu::always_inline]] inline Sum<Type> combine_at(const Stored<Type>* const* from,
                                                   std::int64_t i) {
  Sum<Type> sum = Type::load(from[0][i]);
  if constexpr (kSources > 1) sum = combine<kMaximum>(sum, Type::load(from[1][i]));
  if constexpr (kSources > 2) sum = combine<kMaximum>(sum, Type::load(from[2][i]));
  if constexpr (kSources > 3) sum = combine<kMaximum>(sum, Type::load(from[3][i]));
  return sum;
}

/// Sources in registers, without a sum in memory.
template <typename Type, bool kMaximum, bool kAccumulate, int kSources>
[[gnu::always_inline]] inline void reduce_few(Sources sources, std::int64_t at, std::int64_t n,
                                              Sum<Type> scale, Stored<Type>* out) {
  const Stored<Type>* from[kSources];
  for (int s = 0; s < kSources; ++s) {
    from[s] = static_cast<const Stored<Type>*>(sources[static_cast<std::size_t>(s)]) + at;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    finish<Type, kAccumulate>(combine_at<Type, kMaximum, kSources>(from, i), scale, out[i]);
  }
}

/// Reduces `n` <= kBlock elements at offset `at` of every source into `out`, which may be the same
/// memory as one of them (so the loops say that elements do not depend on each other).
template <typename Type, bool kMaximum, bool kAccumulate>
[[gnu::always_inline]] inline void reduce_block(Sources sources, std::int64_t at, std::int64_t n,
                                                Sum<Type> scale, Stored<Type>* out) {
  switch (sources.size()) {
    case 1:
      return reduce_few<Type, kMaximum, kAccumulate, 1>(sources, at, n, scale, out);
    case 2:
      return reduce_few<Type, kMaximum, kAccumulate, 2>(sources, at, n, scale, out);
    case 3:
      return reduce_few<Type, kMaximum, kAccumulate, 3>(sources, at, n, scale, out);
    case 4:
      return reduce_few<Type, kMaximum, kAccumulate, 4>(sources, at, n, scale, out);
    default:
      break;
  }
  const auto source = [&](std::size_t s) {
    return static_cast<const Stored<Type>*>(sources[s]) + at;
  };
  const Stored<Type>* const first[] = {source(0), source(1), source(2), source(3)};
  alignas(64) Sum<Type> sums[kBlock];
  for (std::int64_t i = 0; i < n; ++i) sums[i] = combine_at<Type, kMaximum, 4>(first, i);
  for (std::size_t s = 4; s + 1 < sources.size(); ++s) {
    const Stored<Type>* const next = source(s);
    for (std::int64_t i = 0; i < n; ++i) {
      sums[i] = combine<kMaximum>(sums[i], Type::load(next[i]));
    }
  }
  const Stored<Type>* const last = source(sources.size() - 1);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const Sum<Type> sum = combine<kMaximum>(sums[i], Type::load(last[i]));
    finish<Type, kAccumulate>(sum, scale, out[i]);
  }
}

template <typename Type, bool kMaximum>
[[gnu::always_inline]] inline void reduce_all(Sources sources, Destinations destinations,
                                              std::int64_t count, Sum<Type> scale,
                                              bool accumulate) {
  alignas(64) Stored<Type> result[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, count - at);
    if (accumulate) {
      for (void* destination : destinations) {
        auto* out = static_cast<Stored<Type>*>(destination) + at;
        reduce_block<Type, kMaximum, true>(sources, at, n, scale, out);
      }
    } else if (destinations.size() == 1) {
      auto* out = static_cast<Stored<Type>*>(destinations[0]) + at;
      reduce_block<Type, kMaximum, false>(sources, at, n, scale, out);
    } else {
      reduce_block<Type, kMaximum, false>(sources, at, n, scale, result);
      for (void* destination : destinations) {
        std::memcpy(static_cast<Stored<Type>*>(destination) + at, result,
                    static_cast<std::size_t>(n) * sizeof(Stored<Type>));
      }
    }
  }
}

template <typename Type>
void reduce_as(bool maximum, Sources sources, Destinations destinations, std::int64_t count,
               Sum<Type> scale, bool accumulate) {
  if (maximum) {
    run_simd<reduce_all<Type, true>>(sources, destinations, count, scale, accumulate);
  } else {
    run_simd<reduce_all<Type, false>>(sources, destinations, count, scale, accumulate);
  }
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMax:
      return "max";
  }
  return "?";
}

}  // namespace

void check_reducible(DType dtype, ReduceOp op) {
  const bool refused =
      dtype == DType::kUInt8 || (dtype == DType::kInt64 && op == ReduceOp::kAverage);
  if (refused) {
    throw UserError::format("{} of {} elements is not defined: reduce fp64, fp32, bf16, fp16{}",
                            name_of(op), shardbench::name_of(dtype),
                            op == ReduceOp::kAverage ? "" : " or int64");
  }
}

void reduce_elements(DType dtype, ReduceOp op, Sources sources, Destinations destinations,
                     std::int64_t count, bool accumulate, std::size_t averaged) {
  check_reducible(dtype, op);
  if (count == 0 || destinations.empty()) return;
  SHARDBENCH_CHECK(!sources.empty());
  const bool maximum = op == ReduceOp::kMax;
  const std::size_t ranks = averaged == 0 ? sources.size() : averaged;
  const double factor = op == ReduceOp::kAverage ? 1.0 / static_cast<double>(ranks) : 1.0;
  const auto scale = static_cast<float>(factor);
  switch (dtype) {
    case DType::kFloat64:
      return reduce_as<Float64>(maximum, sources, destinations, count, factor, accumulate);
    case DType::kFloat32:
      return reduce_as<Float32>(maximum, sources, destinations, count, scale, accumulate);
    case DType::kBFloat16:
      return reduce_as<Brain>(maximum, sources, destinations, count, scale, accumulate);
    case DType::kFloat16:
      return reduce_as<Half>(maximum, sources, destinations, count, scale, accumulate);
    case DType::kInt64:
      return reduce_as<Int64>(maximum, sources, destinations, count, 1, accumulate);
    case DType::kUInt8:
      return;
  }
}

}  // namespace shardbench::comm
