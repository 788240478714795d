// Several calls open at once, waited for in any order, or by nobody.
#include <chrono>

#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::ShardLayout;

/// Each rank waits in another order; the values show that no call took another one's data.
void waits_in_any_order(Context& context) {
  constexpr int kCalls = 12;
  const int world = context.world_size();
  std::vector<TestBuffer> buffers;
  std::vector<Work> works;
  const auto count_of = [](int call) { return call % 4 == 3 ? 400'000 + call : 100 + call; };
  for (int c = 0; c < kCalls; ++c) {
    buffers.push_back(context.buffer(DType::kFloat32, count_of(c)));
    for (std::int64_t i = 0; i < count_of(c); ++i) buffers.back().set(i, c * 10 + context.rank());
    works.push_back(
        context.comm.all_reduce(buffers.back().buffer(), ReduceOp::kSum, context.tag()));
  }
  for (int k = 0; k < kCalls; ++k) {
    const int c = (k * 5 + context.rank() * 7) % kCalls;
    works[static_cast<std::size_t>(c)].wait();
    context.expect_values(buffers[static_cast<std::size_t>(c)], DType::kFloat32,
                          [&](std::int64_t) { return c * 10 * world + world * (world - 1) / 2; });
  }
}

/// Handles are dropped at once, far more calls than any backend keeps open.
void dropped_works_still_happen(Context& context) {
  constexpr int kCalls = 700;
  TestBuffer ones = context.buffer(DType::kInt64, 40);
  TestBuffer shard = context.buffer(DType::kInt64, 40);
  for (std::int64_t i = 0; i < 40; ++i) {
    ones.set(i, 1);
    shard.set(i, 0);
  }
  const ShardLayout layout = ShardLayout::even(40, context.world_size());
  for (int c = 0; c < kCalls; ++c) {
    context.comm.reduce_scatter(layout, ones.buffer(), shard.buffer(), ReduceOp::kSum, true,
                                {"drop", Phase::kBackward});
  }
  context.comm.quiesce();
  const std::int64_t own = layout.count(context.rank());
  context.expect_values(shard, DType::kInt64, [&](std::int64_t i) {
    return i < own ? kCalls * context.world_size() : 0;
  });
}

/// Rank 0 waits for a call that the others have forgotten: they must still serve it.
void leaving_serves_peers(Context& context) {
  TestBuffer data = context.buffer(DType::kFloat32, 500'000);
  for (std::int64_t i = 0; i < data.count(); ++i) data.set(i, 1);
  Work work = context.comm.all_reduce(data.buffer(), ReduceOp::kSum, context.tag());
  if (context.rank() == 0) {
    work.wait();
    context.expect_values(data, DType::kFloat32,
                          [&](std::int64_t) { return context.world_size(); });
  } else {
    work = Work();
    context.comm.quiesce();
  }
}

/// A gather stays open while other calls go by; all buffers are used again in every step.
void interleaved(Context& context, std::int64_t count, int steps) {
  Communicator& comm = context.comm;
  const int world = context.world_size();
  const ShardLayout layout = ShardLayout::even(count, world);
  TestBuffer shard = context.buffer(DType::kFloat32, count);
  TestBuffer full = context.buffer(DType::kFloat32, count);
  TestBuffer grads = context.buffer(DType::kFloat32, count);
  TestBuffer total = context.buffer(DType::kFloat32, count);
  TestBuffer loss = context.buffer(DType::kFloat64, 1);
  for (int step = 0; step < steps; ++step) {
    for (std::int64_t i = 0; i < layout.count(context.rank()); ++i) {
      shard.set(i, step + context.rank());
    }
    for (std::int64_t i = 0; i < count; ++i) {
      grads.set(i, step);
      total.set(i, 7);
    }
    loss.set(0, step);
    const int root = step % world;
    Work gather = comm.all_gather(layout, shard.buffer(), full.buffer(), {"g", Phase::kForward});
    Work sum = comm.all_reduce(loss.buffer(), ReduceOp::kMax, {"loss", Phase::kMetrics});
    Work reduce = comm.reduce(layout, root, grads.buffer(), total.buffer(), ReduceOp::kSum, true,
                              {"r", Phase::kBackward});
    sum.wait();
    context.expect(loss.get(0) == step, "step {}: the maximum is {}", step, loss.get(0));
    gather.wait();
    for (int peer = 0; peer < world; ++peer) {
      for (const auto& s : layout.segments(peer)) {
        context.expect(full.get(s.full_offset) == step + peer, "step {}: rank {}'s part is {}",
                       step, peer, full.get(s.full_offset));
      }
    }
    reduce.wait();
    comm.quiesce();
    if (context.rank() == root && layout.count(root) > 0) {
      context.expect(total.get(0) == 7 + step * world, "step {}: the sum is {}", step,
                     total.get(0));
    }
  }
}

void interleaved_kinds(Context& context) {
  interleaved(context, 50, 150);
  interleaved(context, 70'001, 2);
}

/// Times of a call are ordered, and its states follow from each other.
void states_and_times(Context& context) {
  using Clock = std::chrono::steady_clock;
  TestBuffer data = context.buffer(DType::kFloat32, 1000);
  for (std::int64_t i = 0; i < data.count(); ++i) data.set(i, 1);
  const Clock::time_point issued = Clock::now();
  Work work = context.comm.all_reduce(data.buffer(), ReduceOp::kSum, context.tag());
  while (!work.done()) work.state()->poll();
  const Clock::time_point arrival = work.last_arrival();
  context.expect(arrival >= issued && arrival <= Clock::now(), "the last arrival is out of order");
  work.wait();
  work.wait_released(Clock::now() + std::chrono::minutes(1));
  const WorkTiming timing = work.state()->timing();
  context.expect(timing.completed_ns >= issued.time_since_epoch() / std::chrono::nanoseconds(1),
                 "complete before it was issued");
  context.expect(timing.move_ns >= 0 && timing.peer_wait_ns >= 0, "a negative time");
}

}  // namespace

const std::vector<Case>& flight_cases() {
  static const std::vector<Case> cases = {{"waits in any order", waits_in_any_order},
                                          {"dropped works", dropped_works_still_happen},
                                          {"leaving serves peers", leaving_serves_peers},
                                          {"interleaved kinds", interleaved_kinds},
                                          {"states and times", states_and_times}};
  return cases;
}

}  // namespace shardbench::comm::conformance
