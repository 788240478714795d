#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/comm/communicator.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// What a caller asked for. `source` is what this rank puts in: its shard (all_gather, broadcast),
/// its full buffer (reduce_scatter, reduce) or the data (all_reduce); `target` is what it gets.
struct CallSpec {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool accumulate = false;
  int root = 0;
  sharding::ShardLayout layout;  ///< empty for all_reduce and barrier
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t count = 0;  ///< payload elements
  std::string label;
  Phase phase = Phase::kInit;

  std::size_t element_size() const { return size_of(dtype); }
  std::size_t payload_bytes() const { return static_cast<std::size_t>(count) * element_size(); }
};

constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduce;
}

constexpr bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

/// Equal on two ranks when they issued the same call.
std::uint64_t fingerprint_of(const CallSpec& spec);

/// A communicator that checks every call's arguments and hands it on as one specification.
class SpecCommunicator : public Communicator {
 public:
  Work all_gather(const sharding::ShardLayout& layout, ConstBuffer shard, Buffer full,
                  CallTag tag) override;
  Work reduce_scatter(const sharding::ShardLayout& layout, ConstBuffer full, Buffer shard,
                      ReduceOp op, bool accumulate, CallTag tag) override;
  Work all_reduce(Buffer data, ReduceOp op, CallTag tag) override;
  Work broadcast(const sharding::ShardLayout& layout, int root, ConstBuffer shard, Buffer full,
                 CallTag tag) override;
  Work reduce(const sharding::ShardLayout& layout, int root, ConstBuffer full, Buffer shard,
              ReduceOp op, bool accumulate, CallTag tag) override;
  Work barrier(CallTag tag) override;

 protected:
  virtual Work issue(CallSpec spec) = 0;

 private:
  void check(const sharding::ShardLayout& layout, const ConstBuffer& shard, int owner,
             const ConstBuffer& full) const;
  Work spread(CollectiveKind kind, const sharding::ShardLayout& layout, int root, ConstBuffer shard,
              Buffer full, CallTag tag);
  Work collect(CollectiveKind kind, const sharding::ShardLayout& layout, int root, ConstBuffer full,
               Buffer shard, ReduceOp op, bool accumulate, CallTag tag);
};

}  // namespace shardbench::comm
