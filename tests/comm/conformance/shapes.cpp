// Special forms: in place, one element, averages of two values, NaN.
#include <cmath>
#include <limits>

#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::ShardLayout;

/// The own part of the full buffer is the shard. `count` elements in all.
void in_place(Context& context, std::int64_t count) {
  Communicator& comm = context.comm;
  const int world = context.world_size();
  const ShardLayout layout = ShardLayout::even(count, world);
  const sharding::Range own = sharding::slice_of(count, world, context.rank());
  TestBuffer full = context.buffer(DType::kFloat32, count);
  for (std::int64_t i = own.begin; i < own.end; ++i) full.set(i, test_value(context.rank(), i));
  const Buffer part{static_cast<float*>(full.buffer().data) + own.begin, own.size(),
                    DType::kFloat32};
  comm.all_gather(layout, part, full.buffer(), context.tag()).wait_released();
  const auto owner_value = [&](std::int64_t i) {
    for (int peer = 0; peer < world; ++peer) {
      const sharding::Range range = sharding::slice_of(count, world, peer);
      if (i >= range.begin && i < range.end) return test_value(peer, i);
    }
    return -1.0;
  };
  context.expect_values(full, DType::kFloat32, owner_value);
  // All ranks hold the same now: the sum over ranks, into the own part of the same buffer.
  comm.reduce_scatter(layout, full.buffer(), part, ReduceOp::kSum, false, context.tag()).wait();
  for (std::int64_t i = own.begin; i < own.end; ++i) {
    context.expect(full.get(i) == world * test_value(context.rank(), i),
                   "in place, element {} is {}", i, full.get(i));
  }
  comm.quiesce();
}

void in_place_forms(Context& context) {
  in_place(context, 17);
  in_place(context, 150'001);
}

void one_element(Context& context) {
  Communicator& comm = context.comm;
  for (const DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64}) {
    TestBuffer data = context.buffer(dtype, 1);
    data.set(0, context.rank() + 1);
    comm.all_reduce(data.buffer(), ReduceOp::kSum, context.tag()).wait();
    const int world = context.world_size();
    context.expect(data.get(0) == world * (world + 1) / 2, "{}: the sum of one element is {}",
                   name_of(dtype), data.get(0));
  }
}

/// An average of 1 and 3 (and more twos) is 2, never the sum.
void average_is_no_sum(Context& context) {
  Communicator& comm = context.comm;
  const int world = context.world_size();
  if (world < 2) return;
  const ShardLayout layout =
      ShardLayout::contiguous(std::vector<std::int64_t>(static_cast<std::size_t>(world), 1));
  const double mine = context.rank() == 0 ? 1 : context.rank() == 1 ? 3 : 2;
  for (const DType dtype : all_dtypes()) {
    if (!is_defined(dtype, ReduceOp::kAverage)) continue;
    const bool exact = (world & (world - 1)) == 0;  // other factors are rounded
    TestBuffer full = context.buffer(dtype, world);
    TestBuffer data = context.buffer(dtype, 1);
    TestBuffer shard = context.buffer(dtype, 1);
    for (int i = 0; i < world; ++i) full.set(i, mine);
    data.set(0, mine);
    const CallTag tag = context.tag();
    comm.all_reduce(data.buffer(), ReduceOp::kAverage, tag).wait();
    comm.reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kAverage, false, tag)
        .wait_released();
    context.expect(!exact || data.get(0) == 2, "{}: all_reduce gives {}", name_of(dtype),
                   data.get(0));
    context.expect(!exact || shard.get(0) == 2, "{}: reduce_scatter gives {}", name_of(dtype),
                   shard.get(0));
    shard.set(0, 7);
    comm.reduce(layout, 1, full.buffer(), shard.buffer(), ReduceOp::kAverage, false, tag)
        .wait_released();
    context.expect(!exact || shard.get(0) == (context.rank() == 1 ? 2 : 7), "{}: reduce gives {}",
                   name_of(dtype), shard.get(0));
  }
}

void maximum_keeps_nan(Context& context) {
  const int world = context.world_size();
  TestBuffer data = context.buffer(DType::kFloat32, world);
  for (int i = 0; i < world; ++i) {
    data.set(i, i == context.rank() ? std::numeric_limits<double>::quiet_NaN() : context.rank());
  }
  context.comm.all_reduce(data.buffer(), ReduceOp::kMax, context.tag()).wait();
  for (int i = 0; i < world; ++i) {
    context.expect(std::isnan(data.get(i)), "maximum with a NaN is {}", data.get(i));
  }
}

}  // namespace

const std::vector<Case>& shape_cases() {
  static const std::vector<Case> cases = {{"in place", in_place_forms},
                                          {"one element", one_element},
                                          {"average is no sum", average_is_no_sum},
                                          {"maximum keeps NaN", maximum_keeps_nan}};
  return cases;
}

}  // namespace shardbench::comm::conformance
