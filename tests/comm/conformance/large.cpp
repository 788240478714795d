// Payloads of many MiB: cut into chunks, sent without a copy, and with odd ends.
#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

constexpr std::int64_t kPeriod = 1001;

/// Repeats itself every kPeriod elements.
float large_value(int rank, std::int64_t i) {
  return static_cast<float>((i * (rank + 3)) % kPeriod - 500);
}

/// Sums over all ranks, of one period.
std::vector<float> large_sums(int world_size) {
  std::vector<float> sums(kPeriod);
  for (int rank = 0; rank < world_size; ++rank) {
    for (std::int64_t i = 0; i < kPeriod; ++i) {
      sums[static_cast<std::size_t>(i)] += large_value(rank, i);
    }
  }
  return sums;
}

float* floats(TestBuffer& buffer) { return static_cast<float*>(buffer.buffer().data); }

/// Notes the first difference from `expected(i)`.
template <class Expected>
void expect_floats(Context& context, std::string_view what, const float* data, std::int64_t count,
                   const Expected& expected) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (data[i] == expected(i)) continue;
    context.expect(false, "{}: element {} of {} is {}, not {}", what, i, count, data[i],
                   expected(i));
    return;
  }
}

/// `symmetric`: this rank's memory; it may differ from that of others.
void scatter_gather_equals_all_reduce(Context& context, std::int64_t bytes, bool symmetric) {
  const std::int64_t count = bytes / 4;
  Communicator& comm = context.comm;
  const ShardLayout layout = ShardLayout::even(count, context.world_size());
  const auto buffer = [&](std::int64_t elements) {
    return TestBuffer(comm, symmetric, DType::kFloat32, elements);
  };
  TestBuffer full = buffer(count);
  TestBuffer data = buffer(count);
  TestBuffer shard = buffer(layout.shard_extent(context.rank()));
  float* const in = floats(full);
  float* const reduced = floats(data);
  for (std::int64_t i = 0; i < count; ++i) in[i] = reduced[i] = large_value(context.rank(), i);
  const std::vector<float> sums = large_sums(context.world_size());
  const auto want = [&](std::int64_t i) { return sums[static_cast<std::size_t>(i % kPeriod)]; };

  const CallTag tag{"large", Phase::kBackward};
  comm.reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kSum, false, tag)
      .wait_released();  // or the gather below would overwrite what peers still read
  comm.all_gather(layout, shard.buffer(), full.buffer(), tag).wait();
  expect_floats(context, "scattered and gathered", in, count, want);
  comm.all_reduce(data.buffer(), ReduceOp::kSum, tag).wait();
  expect_floats(context, "all_reduce", reduced, count, want);
}

void some_mib(Context& context) {
  scatter_gather_equals_all_reduce(context, 3 * kMiB + 28, context.symmetric());
  scatter_gather_equals_all_reduce(context, 8 * kMiB + 12, context.symmetric());
}

void many_chunks(Context& context) {
  scatter_gather_equals_all_reduce(context, 20 * kMiB + 4, context.symmetric());
}

/// Peers reach the memory of some ranks, and not that of the others.
void memory_differs_by_rank(Context& context) {
  const bool is_even = context.rank() % 2 == 0;
  scatter_gather_equals_all_reduce(context, 2 * kMiB + 20, is_even == context.symmetric());
}

/// Small and large segments by turns, in another order in the shard, with gaps in both; a root's
/// reduce and broadcast over them.
void segments_in(Context& context, bool symmetric) {
  const int world = context.world_size();
  std::vector<std::vector<Segment>> by_rank(static_cast<std::size_t>(world));
  std::int64_t at = 3;
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t large = 300'007 + 11 * rank;
    by_rank[static_cast<std::size_t>(rank)] = {
        {large + 4, at, 5}, {0, at + 8, large}, {large + 10, at + large + 9, 700}};
    at += large + 710;
  }
  const ShardLayout layout(by_rank);
  const std::vector<Segment>& own = layout.segments(context.rank());
  Communicator& comm = context.comm;
  TestBuffer full(comm, symmetric, DType::kFloat32, layout.full_extent());
  TestBuffer shard(comm, symmetric, DType::kFloat32, layout.shard_extent(context.rank()));
  const CallTag tag{"mixed", Phase::kForward};
  for (int root = 0; root < world; ++root) {
    for (std::int64_t i = 0; i < full.count(); ++i) {
      floats(full)[i] = large_value(context.rank(), i);
    }
    comm.reduce(layout, root, full.buffer(), shard.buffer(), ReduceOp::kSum, false, tag)
        .wait_released();
  }
  const std::vector<float> sums = large_sums(world);
  for (const Segment& s : own) {
    expect_floats(context, "reduce", floats(shard) + s.shard_offset, s.count, [&](std::int64_t i) {
      return sums[static_cast<std::size_t>((s.full_offset + i) % kPeriod)];
    });
    for (std::int64_t i = 0; i < s.count; ++i) {
      floats(shard)[s.shard_offset + i] = large_value(context.rank() + 5, s.full_offset + i);
    }
  }
  const auto expect_full = [&](std::string_view what) {
    for (int peer = 0; peer < world; ++peer) {
      for (const Segment& s : layout.segments(peer)) {
        expect_floats(context, what, floats(full) + s.full_offset, s.count,
                      [&](std::int64_t i) { return large_value(peer + 5, s.full_offset + i); });
      }
    }
  };
  comm.all_gather(layout, shard.buffer(), full.buffer(), tag).wait_released();
  expect_full("all_gather");
  for (std::int64_t i = 0; i < full.count(); ++i) floats(full)[i] = -1;
  for (int root = 0; root < world; ++root) {
    comm.broadcast(layout, root, shard.buffer(), full.buffer(), tag).wait_released();
  }
  expect_full("broadcast");
}

void mixed_segments(Context& context) {
  segments_in(context, context.symmetric());
  segments_in(context, (context.rank() % 2 == 0) == context.symmetric());
}

}  // namespace

const std::vector<Case>& large_cases() {
  static const std::vector<Case> cases = {{"some MiB", some_mib},
                                          {"many chunks", many_chunks},
                                          {"memory differs by rank", memory_differs_by_rank},
                                          {"mixed segments", mixed_segments}};
  return cases;
}

}  // namespace shardbench::comm::conformance
