// Sums start at rank 0's value and go on by rank, in fp32 for the narrower types: values whose sum
// depends on the order have one right result, bit for bit.
#include <cmath>

#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

/// Of very different sizes.
double order_value(DType dtype, int rank, std::int64_t i) {
  const auto digits = static_cast<double>((i * 7 + rank * 31) % 97 - 48);
  const auto power = static_cast<int>((i + rank * 5) % 7 * 2);
  return rounded(dtype, std::ldexp(digits, power - 4) / 3);
}

template <typename Sum>
double sum_by_rank(DType dtype, ReduceOp op, int world_size, std::int64_t i) {
  auto sum = static_cast<Sum>(order_value(dtype, 0, i));
  for (int rank = 1; rank < world_size; ++rank) {
    sum += static_cast<Sum>(order_value(dtype, rank, i));
  }
  if (op == ReduceOp::kAverage) sum *= static_cast<Sum>(1.0 / world_size);
  return rounded(dtype, sum);
}

double expected(DType dtype, ReduceOp op, int world_size, std::int64_t i) {
  return dtype == DType::kFloat64 ? sum_by_rank<double>(dtype, op, world_size, i)
                                  : sum_by_rank<float>(dtype, op, world_size, i);
}

void check_order(Context& context, DType dtype, ReduceOp op) {
  constexpr std::int64_t kCount = 3001;
  Communicator& comm = context.comm;
  const int world = context.world_size();
  const ShardLayout layout = ShardLayout::even(kCount, world);
  TestBuffer full = context.buffer(dtype, kCount);
  TestBuffer data = context.buffer(dtype, kCount);
  TestBuffer shard = context.buffer(dtype, layout.shard_extent(context.rank()));
  for (std::int64_t i = 0; i < kCount; ++i) {
    full.set(i, order_value(dtype, context.rank(), i));
    data.set(i, order_value(dtype, context.rank(), i));
  }
  const auto expect = [&](std::string_view what, double got, std::int64_t i) {
    const double want = expected(dtype, op, world, i);
    context.expect(got == want, "{} of {}: element {} is {}, not {}", what, name_of(dtype), i, got,
                   want);
  };
  comm.all_reduce(data.buffer(), op, context.tag()).wait();
  for (std::int64_t i = 0; i < kCount; ++i) expect("all_reduce", data.get(i), i);
  const int last = world - 1;
  comm.reduce_scatter(layout, full.buffer(), shard.buffer(), op, false, context.tag())
      .wait_released();
  for (const Segment& s : layout.segments(context.rank())) {
    for (std::int64_t i = 0; i < s.count; ++i) {
      expect("reduce_scatter", shard.get(s.shard_offset + i), s.full_offset + i);
    }
  }
  comm.reduce(layout, last, full.buffer(), shard.buffer(), op, false, context.tag())
      .wait_released();
  for (const Segment& s : layout.segments(last)) {
    for (std::int64_t i = 0; context.rank() == last && i < s.count; ++i) {
      expect("reduce", shard.get(s.shard_offset + i), s.full_offset + i);
    }
  }
}

void sums_by_rank(Context& context) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    check_order(context, dtype, ReduceOp::kSum);
    check_order(context, dtype, ReduceOp::kAverage);
  }
}

}  // namespace

const std::vector<Case>& order_cases() {
  static const std::vector<Case> cases = {{"sums by rank", sums_by_rank}};
  return cases;
}

}  // namespace shardbench::comm::conformance
