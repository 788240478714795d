#include "common/comm/call_spec.h"

#include <bit>
#include <functional>

#include "common/comm/reduce.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;

/// Adds one number to a hash: a different one always gives another hash. In small calls every
/// nanosecond of this shows, so bits are spread only once, by finish().
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15u;
}

/// The finalizer of splitmix64: every bit depends on all.
std::uint64_t finish(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

CallSpec make(CollectiveKind kind, DType dtype, std::int64_t count, CallTag tag) {
  CallSpec spec;
  spec.kind = kind;
  spec.dtype = dtype;
  spec.count = count;
  spec.label = tag.label;
  spec.phase = tag.phase;
  return spec;
}

}  // namespace

std::uint64_t fingerprint_of(const CallSpec& spec) {
  std::uint64_t hash = mix(1, static_cast<std::uint64_t>(spec.kind));
  hash = mix(hash, static_cast<std::uint64_t>(spec.dtype));
  hash = mix(hash, reduces(spec.kind) ? static_cast<std::uint64_t>(spec.op) : 0);
  hash = mix(hash, has_root(spec.kind) ? static_cast<std::uint64_t>(spec.root) : 0);
  hash = mix(hash, static_cast<std::uint64_t>(spec.count));
  hash = mix(hash, std::hash<std::string>{}(spec.label));
  for (int rank = 0; rank < spec.layout.world_size(); ++rank) {
    hash = mix(hash, static_cast<std::uint64_t>(spec.layout.count(rank)));
    hash = mix(hash, static_cast<std::uint64_t>(spec.layout.shard_extent(rank)));
  }
  return finish(mix(hash, static_cast<std::uint64_t>(spec.layout.full_extent())));
}

/// `owner` is the rank whose shard the call is about; only it must bring one.
void SpecCommunicator::check(const ShardLayout& layout, const ConstBuffer& shard, int owner,
                             const ConstBuffer& full) const {
  SHARDBENCH_CHECK_EQ(layout.world_size(), world_size());
  SHARDBENCH_CHECK(owner >= 0 && owner < world_size(), "root {} of {} ranks", owner, world_size());
  const bool sees_all = full.count >= layout.full_extent();
  SHARDBENCH_CHECK(sees_all, "full buffer of {} elements, layout reaches to {}", full.count,
                   layout.full_extent());
  SHARDBENCH_CHECK(full.data != nullptr || layout.full_extent() == 0);
  if (owner != rank()) return;
  SHARDBENCH_CHECK(shard.dtype == full.dtype, "shard is {}, full buffer {}", name_of(shard.dtype),
                   name_of(full.dtype));
  SHARDBENCH_CHECK_GE(shard.count, layout.shard_extent(rank()));
  SHARDBENCH_CHECK(shard.data != nullptr || layout.shard_extent(rank()) == 0);
}

Work SpecCommunicator::spread(CollectiveKind kind, const ShardLayout& layout, int root,
                              ConstBuffer shard, Buffer full, CallTag tag) {
  const bool rooted = has_root(kind);
  check(layout, shard, rooted ? root : rank(), full);
  CallSpec spec = make(kind, full.dtype, rooted ? layout.count(root) : layout.total(), tag);
  spec.layout = layout;
  spec.root = root;
  spec.source = bytes_of(shard.data);
  spec.target = bytes_of(full.data);
  return issue(std::move(spec));
}

Work SpecCommunicator::collect(CollectiveKind kind, const ShardLayout& layout, int root,
                               ConstBuffer full, Buffer shard, ReduceOp op, bool accumulate,
                               CallTag tag) {
  const bool rooted = has_root(kind);
  check(layout, shard, rooted ? root : rank(), full);
  check_reducible(full.dtype, op);
  CallSpec spec = make(kind, full.dtype, rooted ? layout.count(root) : layout.total(), tag);
  spec.layout = layout;
  spec.root = root;
  spec.op = op;
  spec.accumulate = accumulate;
  spec.source = bytes_of(full.data);
  spec.target = bytes_of(shard.data);
  return issue(std::move(spec));
}

Work SpecCommunicator::all_gather(const ShardLayout& layout, ConstBuffer shard, Buffer full,
                                  CallTag tag) {
  return spread(CollectiveKind::kAllGather, layout, 0, shard, full, tag);
}

Work SpecCommunicator::broadcast(const ShardLayout& layout, int root, ConstBuffer shard,
                                 Buffer full, CallTag tag) {
  return spread(CollectiveKind::kBroadcast, layout, root, shard, full, tag);
}

Work SpecCommunicator::reduce_scatter(const ShardLayout& layout, ConstBuffer full, Buffer shard,
                                      ReduceOp op, bool accumulate, CallTag tag) {
  return collect(CollectiveKind::kReduceScatter, layout, 0, full, shard, op, accumulate, tag);
}

Work SpecCommunicator::reduce(const ShardLayout& layout, int root, ConstBuffer full, Buffer shard,
                              ReduceOp op, bool accumulate, CallTag tag) {
  return collect(CollectiveKind::kReduce, layout, root, full, shard, op, accumulate, tag);
}

Work SpecCommunicator::all_reduce(Buffer data, ReduceOp op, CallTag tag) {
  check_reducible(data.dtype, op);
  SHARDBENCH_CHECK(data.count == 0 || data.data != nullptr);
  CallSpec spec = make(CollectiveKind::kAllReduce, data.dtype, data.count, tag);
  spec.op = op;
  spec.source = bytes_of(data.data);
  spec.target = bytes_of(data.data);
  return issue(std::move(spec));
}

Work SpecCommunicator::barrier(CallTag tag) {
  return issue(make(CollectiveKind::kBarrier, DType::kUInt8, 0, tag));
}

}  // namespace shardbench::comm
