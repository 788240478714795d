#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// What every layer around a backend needs to know of one call: its bytes, by definition.
struct CallShape {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kUInt8;
  int root = 0;
  std::int64_t payload_bytes = 0;                 ///< the full tensor
  std::int64_t part_bytes = 0;                    ///< this rank's own part
  const sharding::ShardLayout* layout = nullptr;  ///< while the call is issued; null: it has none
};

/// Elements per 64 bytes: all_reduce slices start on 64 bytes.
inline std::int64_t slice_multiple(DType dtype) {
  return sharding::kPieceAlignment / static_cast<std::int64_t>(size_of(dtype));
}

/// The part of an all_reduce that `rank` reduces.
inline sharding::Range all_reduce_slice(std::int64_t count, DType dtype, int world_size, int rank) {
  return sharding::slice_of(count, world_size, rank, slice_multiple(dtype));
}

/// A communicator that forwards every call to another one and then sees the call: `after_issue`
/// gets its shape, when it was issued, and the inner Work, and returns what the caller gets.
template <class Base>
class Decorator : public Base {
 public:
  explicit Decorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view backend() const override { return inner_->backend(); }

  Work all_gather(const sharding::ShardLayout& layout, ConstBuffer shard, Buffer full,
                  CallTag tag) override {
    const CallShape shape = sharded(CollectiveKind::kAllGather, layout, full.dtype);
    return around(shape, tag, [&] { return inner_->all_gather(layout, shard, full, tag); });
  }
  Work reduce_scatter(const sharding::ShardLayout& layout, ConstBuffer full, Buffer shard,
                      ReduceOp op, bool accumulate, CallTag tag) override {
    const CallShape shape = sharded(CollectiveKind::kReduceScatter, layout, full.dtype);
    return around(shape, tag,
                  [&] { return inner_->reduce_scatter(layout, full, shard, op, accumulate, tag); });
  }
  Work all_reduce(Buffer data, ReduceOp op, CallTag tag) override {
    const auto bytes = static_cast<std::int64_t>(size_of(data.dtype));
    const std::int64_t part = all_reduce_slice(data.count, data.dtype, world_size(), rank()).size();
    const CallShape shape{CollectiveKind::kAllReduce, data.dtype,   0,
                          data.count * bytes,         part * bytes, nullptr};
    return around(shape, tag, [&] { return inner_->all_reduce(data, op, tag); });
  }
  Work broadcast(const sharding::ShardLayout& layout, int root, ConstBuffer shard, Buffer full,
                 CallTag tag) override {
    const CallShape shape = rooted(CollectiveKind::kBroadcast, layout, root, full.dtype);
    return around(shape, tag, [&] { return inner_->broadcast(layout, root, shard, full, tag); });
  }
  Work reduce(const sharding::ShardLayout& layout, int root, ConstBuffer full, Buffer shard,
              ReduceOp op, bool accumulate, CallTag tag) override {
    const CallShape shape = rooted(CollectiveKind::kReduce, layout, root, full.dtype);
    return around(shape, tag,
                  [&] { return inner_->reduce(layout, root, full, shard, op, accumulate, tag); });
  }
  Work barrier(CallTag tag) override {
    return around(CallShape{}, tag, [&] { return inner_->barrier(tag); });
  }

  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    return inner_->symmetric_empty(bytes);
  }
  SymmetricMemory shared_empty(std::size_t bytes, std::size_t own_bytes) override {
    return inner_->shared_empty(bytes, own_bytes);
  }
  void abort(std::string_view message) override { inner_->abort(message); }
  void quiesce() override { inner_->quiesce(); }

 protected:
  virtual Work after_issue(const CallShape& shape, CallTag tag,
                           std::chrono::steady_clock::time_point issued, Work work) = 0;

  std::unique_ptr<Communicator> inner_;

 private:
  template <class Issue>
  Work around(const CallShape& shape, CallTag tag, const Issue& issue) {
    const auto issued = std::chrono::steady_clock::now();
    return after_issue(shape, tag, issued, issue());
  }
  CallShape sharded(CollectiveKind kind, const sharding::ShardLayout& layout, DType dtype) const {
    const auto bytes = static_cast<std::int64_t>(size_of(dtype));
    return {kind, dtype, 0, layout.total() * bytes, layout.count(rank()) * bytes, &layout};
  }
  CallShape rooted(CollectiveKind kind, const sharding::ShardLayout& layout, int root,
                   DType dtype) const {
    const auto bytes = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t payload = layout.count(root) * bytes;
    return {kind, dtype, root, payload, rank() == root ? payload : 0, &layout};
  }
};

}  // namespace shardbench::comm
