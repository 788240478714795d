// Bytes counted where they are moved equal what the definitions of the collectives say.
#include "common/comm/call_shape.h"
#include "common/comm/link.h"
#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {
namespace {

using sharding::ShardLayout;

constexpr Phase kPhase = Phase::kOptimizer;  // of no other case

/// What this rank has sent and received so far.
AlgoBytes counted(const Context& context, CollectiveKind kind) {
  AlgoBytes bytes;
  for (int peer = 0; peer < context.world_size(); ++peer) {
    if (peer == context.rank()) continue;
    bytes.sent += context.wire()->bytes(kind, kPhase, context.rank(), peer);
    bytes.received += context.wire()->bytes(kind, kPhase, peer, context.rank());
  }
  return bytes;
}

/// Compares the bytes of single calls, each issued by all ranks after the one before has been
/// counted.
class WireCheck {
 public:
  explicit WireCheck(Context& context) : context_(context) {}

  template <class Issue>
  void compare(CollectiveKind kind, int root, std::int64_t payload, std::int64_t part,
               const Issue& issue) {
    const AlgoBytes before = counted(context_, kind);
    issue().wait_released();
    context_.comm.quiesce();
    context_.comm.barrier(context_.tag(Phase::kInit)).wait();
    const AlgoBytes after = counted(context_, kind);
    AlgoBytes got{after.sent - before.sent, after.received - before.received};
    AlgoBytes want = algo_bytes(kind, context_.world_size(), context_.rank(), root, payload, part);
    if (context_.wire_rule() == WireRule::kSums) {
      // Who only receives gets the same bytes from whomever.
      const bool spreads = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kBroadcast;
      context_.expect(!spreads || got.received == want.received,
                      "{} of {} bytes: {} received, not {}", name_of(kind), payload, got.received,
                      want.received);
      got = sum_over_ranks(got);
      want = sum_over_ranks(want);
    }
    context_.expect(got.sent == want.sent, "{} of {} bytes: {} sent, not {}", name_of(kind),
                    payload, got.sent, want.sent);
    context_.expect(got.received == want.received, "{} of {} bytes: {} received, not {}",
                    name_of(kind), payload, got.received, want.received);
  }

 private:
  AlgoBytes sum_over_ranks(AlgoBytes bytes) {
    std::int64_t both[] = {bytes.sent, bytes.received};
    context_.comm.all_reduce({both, 2, DType::kInt64}, ReduceOp::kSum, context_.tag(Phase::kInit))
        .wait();
    return {both[0], both[1]};
  }

  Context& context_;
};

void compare_all(Context& context, const ShardLayout& layout, DType dtype) {
  Communicator& comm = context.comm;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  TestBuffer full = context.buffer(dtype, layout.full_extent());
  TestBuffer shard = context.buffer(dtype, layout.shard_extent(context.rank()));
  TestBuffer data = context.buffer(dtype, layout.total());
  for (TestBuffer* buffer : {&full, &shard, &data}) {
    for (std::int64_t i = 0; i < buffer->count(); ++i) buffer->set(i, 1);
  }
  WireCheck check(context);
  const CallTag tag{"counted", kPhase};
  const ReduceOp op = ReduceOp::kMax;
  const std::int64_t payload = layout.total() * element;
  const std::int64_t part = layout.count(context.rank()) * element;
  const sharding::Range slice =
      all_reduce_slice(layout.total(), dtype, context.world_size(), context.rank());
  check.compare(CollectiveKind::kAllGather, 0, payload, part,
                [&] { return comm.all_gather(layout, shard.buffer(), full.buffer(), tag); });
  check.compare(CollectiveKind::kReduceScatter, 0, payload, part, [&] {
    return comm.reduce_scatter(layout, full.buffer(), shard.buffer(), op, false, tag);
  });
  check.compare(CollectiveKind::kAllReduce, 0, payload, slice.size() * element,
                [&] { return comm.all_reduce(data.buffer(), op, tag); });
  for (int root = 0; root < context.world_size(); root += 3) {
    const std::int64_t roots = layout.count(root) * element;
    const std::int64_t own = context.rank() == root ? roots : 0;
    check.compare(CollectiveKind::kBroadcast, root, roots, own,
                  [&] { return comm.broadcast(layout, root, shard.buffer(), full.buffer(), tag); });
    check.compare(CollectiveKind::kReduce, root, roots, own, [&] {
      return comm.reduce(layout, root, full.buffer(), shard.buffer(), op, true, tag);
    });
  }
}

void wire_equals_algo(Context& context) {
  if (context.wire() == nullptr) return;
  for (const ShardLayout& layout : test_layouts(context.world_size())) {
    compare_all(context, layout, DType::kFloat32);
    compare_all(context, layout, DType::kBFloat16);
  }
  compare_all(context, ShardLayout::even(600'000, context.world_size()), DType::kFloat64);
}

}  // namespace

const std::vector<Case>& wire_cases() {
  static const std::vector<Case> cases = {{"wire equals algo", wire_equals_algo}};
  return cases;
}

}  // namespace shardbench::comm::conformance
