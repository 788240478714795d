// Every collective x type x operation x layout, in whole numbers that have one right result.
#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax};
constexpr int kNoRoot = -1;

/// all_gather, or broadcast of the root's part.
void spread(Context& context, const ShardLayout& layout, DType dtype, int root) {
  TestBuffer shard = context.buffer(dtype, layout.shard_extent(context.rank()));
  TestBuffer full = context.buffer(dtype, layout.full_extent());
  for (const Segment& s : layout.segments(context.rank())) {
    for (std::int64_t i = 0; i < s.count; ++i) {
      shard.set(s.shard_offset + i, test_value(context.rank(), s.full_offset + i));
    }
  }
  Communicator& comm = context.comm;
  Work work = root == kNoRoot
                  ? comm.all_gather(layout, shard.buffer(), full.buffer(), context.tag())
                  : comm.broadcast(layout, root, shard.buffer(), full.buffer(), context.tag());
  work.wait();
  context.expect(work.done(), "wait() returned, but done() is false");
  std::vector<double> expected(static_cast<std::size_t>(layout.full_extent()), -1);
  for (int peer = 0; peer < context.world_size(); ++peer) {
    if (root != kNoRoot && peer != root) continue;
    for (const Segment& s : layout.segments(peer)) {
      for (std::int64_t i = s.full_offset; i < s.full_offset + s.count; ++i) {
        expected[static_cast<std::size_t>(i)] = test_value(peer, i);
      }
    }
  }
  context.expect_values(full, dtype,
                        [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
  work.wait_released();
}

void moves(Context& context) {
  for (const ShardLayout& layout : test_layouts(context.world_size())) {
    for (const DType dtype : all_dtypes()) {
      spread(context, layout, dtype, kNoRoot);
      for (int root = 0; root < context.world_size(); root += 2) {
        spread(context, layout, dtype, root);
      }
    }
  }
}

/// reduce_scatter, or reduce to the root.
void collect(Context& context, const ShardLayout& layout, DType dtype, ReduceOp op, bool accumulate,
             int root) {
  constexpr double kBefore = 3;
  TestBuffer full = context.buffer(dtype, layout.full_extent());
  TestBuffer shard = context.buffer(dtype, layout.shard_extent(context.rank()));
  for (std::int64_t i = 0; i < full.count(); ++i) full.set(i, test_value(context.rank(), i));
  for (std::int64_t i = 0; accumulate && i < shard.count(); ++i) shard.set(i, kBefore);
  Communicator& comm = context.comm;
  const CallTag tag = context.tag(Phase::kBackward);
  Work work = root == kNoRoot
                  ? comm.reduce_scatter(layout, full.buffer(), shard.buffer(), op, accumulate, tag)
                  : comm.reduce(layout, root, full.buffer(), shard.buffer(), op, accumulate, tag);
  work.wait();
  std::vector<double> expected(static_cast<std::size_t>(shard.count()), accumulate ? kBefore : -1);
  for (const Segment& s : layout.segments(context.rank())) {
    if (root != kNoRoot && root != context.rank()) break;
    for (std::int64_t i = 0; i < s.count; ++i) {
      double want = reduced_value(dtype, op, context.world_size(), s.full_offset + i);
      if (accumulate && dtype == DType::kFloat64) {
        want = kBefore + want;
      } else if (accumulate) {
        want = static_cast<float>(kBefore + static_cast<float>(want));
      }
      expected[static_cast<std::size_t>(s.shard_offset + i)] = rounded(dtype, want);
    }
  }
  context.expect_values(shard, dtype,
                        [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
  work.wait_released();
}

void reductions(Context& context) {
  for (const ShardLayout& layout : test_layouts(context.world_size())) {
    for (const DType dtype : all_dtypes()) {
      for (const ReduceOp op : kOps) {
        if (!is_defined(dtype, op)) continue;
        for (const bool accumulate : {false, true}) {
          collect(context, layout, dtype, op, accumulate, kNoRoot);
          for (int root = 1; root < context.world_size(); root += 2) {
            collect(context, layout, dtype, op, accumulate, root);
          }
        }
      }
    }
  }
}

void all_reduces(Context& context) {
  for (const std::int64_t count : {0, 1, 9, 23, 5000}) {
    for (const DType dtype : all_dtypes()) {
      for (const ReduceOp op : kOps) {
        if (!is_defined(dtype, op)) continue;
        TestBuffer data = context.buffer(dtype, count);
        for (std::int64_t i = 0; i < count; ++i) data.set(i, test_value(context.rank(), i));
        Work work = context.comm.all_reduce(data.buffer(), op, context.tag());
        work.wait();
        // 13 elements on, every rank has the same values again.
        std::vector<double> expected;
        for (std::int64_t i = 0; i < 13; ++i) {
          expected.push_back(rounded(dtype, reduced_value(dtype, op, context.world_size(), i)));
        }
        context.expect_values(data, dtype, [&](std::int64_t i) {
          return expected[static_cast<std::size_t>(i % 13)];
        });
        work.wait_released();
      }
    }
  }
}

}  // namespace

const std::vector<Case>& exact_cases() {
  static const std::vector<Case> cases = {
      {"moves", moves}, {"reductions", reductions}, {"all_reduces", all_reduces}};
  return cases;
}

}  // namespace shardbench::comm::conformance
