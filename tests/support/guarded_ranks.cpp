#include <vector>

#include "common/comm/call_spec.h"
#include "tests/support/guarded_device.h"

namespace shardbench::testing {

namespace {

class GuardedBlock : public comm::SymmetricMemory::Owner {
 public:
  void release(void* data) override {
    if (data != nullptr) guarded_free(data);
  }
};

/// A buffer of the device's as the host sees it for the time of a call.
class Mirror {
 public:
  Mirror(const void* data, std::int64_t count, DType dtype) : data_(const_cast<void*>(data)) {
    if (!is_guarded(data)) return;
    bytes_.resize(static_cast<std::size_t>(count) * size_of(dtype));
    guarded_copy(bytes_.data(), data_, bytes_.size());
  }
  void* host() { return bytes_.empty() ? data_ : bytes_.data(); }
  void write_back() {
    if (!bytes_.empty()) guarded_copy(data_, bytes_.data(), bytes_.size());
  }

 private:
  void* data_;
  std::vector<std::byte> bytes_;
};

class GuardedRanks : public comm::Communicator {
 public:
  explicit GuardedRanks(std::unique_ptr<comm::Communicator> ranks) : ranks_(std::move(ranks)) {}

  int rank() const override { return ranks_->rank(); }
  int world_size() const override { return ranks_->world_size(); }
  std::string_view backend() const override { return ranks_->backend(); }

  comm::Work all_gather(const sharding::ShardLayout& layout, comm::ConstBuffer shard,
                        comm::Buffer full, comm::CallTag tag) override {
    return spread(shard, full, [&](comm::ConstBuffer from, comm::Buffer to) {
      return ranks_->all_gather(layout, from, to, tag);
    });
  }
  comm::Work broadcast(const sharding::ShardLayout& layout, int root, comm::ConstBuffer shard,
                       comm::Buffer full, comm::CallTag tag) override {
    return spread(shard, full, [&](comm::ConstBuffer from, comm::Buffer to) {
      return ranks_->broadcast(layout, root, from, to, tag);
    });
  }
  comm::Work reduce_scatter(const sharding::ShardLayout& layout, comm::ConstBuffer full,
                            comm::Buffer shard, comm::ReduceOp op, bool accumulate,
                            comm::CallTag tag) override {
    return spread(full, shard, [&](comm::ConstBuffer from, comm::Buffer to) {
      return ranks_->reduce_scatter(layout, from, to, op, accumulate, tag);
    });
  }
  comm::Work reduce(const sharding::ShardLayout& layout, int root, comm::ConstBuffer full,
                    comm::Buffer shard, comm::ReduceOp op, bool accumulate,
                    comm::CallTag tag) override {
    return spread(full, shard, [&](comm::ConstBuffer from, comm::Buffer to) {
      return ranks_->reduce(layout, root, from, to, op, accumulate, tag);
    });
  }
  comm::Work all_reduce(comm::Buffer data, comm::ReduceOp op, comm::CallTag tag) override {
    Mirror mirror(data.data, data.count, data.dtype);
    ranks_->all_reduce({mirror.host(), data.count, data.dtype}, op, tag).wait_released();
    mirror.write_back();
    return {};
  }
  comm::Work barrier(comm::CallTag tag) override { return ranks_->barrier(tag); }

  comm::SymmetricMemory symmetric_empty(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : guarded_allocate(bytes);
    return {std::make_shared<GuardedBlock>(), data, bytes};
  }
  void abort(std::string_view message) override { ranks_->abort(message); }
  void quiesce() override { ranks_->quiesce(); }

 private:
  /// One buffer to another, which may be the same memory.
  template <typename Call>
  comm::Work spread(comm::ConstBuffer from, comm::Buffer to, Call call) {
    Mirror target(to.data, to.count, to.dtype);
    const bool same = from.data == to.data;
    Mirror source(same ? nullptr : from.data, from.count, from.dtype);
    call({same ? target.host() : source.host(), from.count, from.dtype},
         {target.host(), to.count, to.dtype})
        .wait_released();
    target.write_back();
    return {};
  }

  std::unique_ptr<comm::Communicator> ranks_;
};

}  // namespace

std::unique_ptr<comm::Communicator> over_guarded_device(std::unique_ptr<comm::Communicator> ranks) {
  return std::make_unique<GuardedRanks>(std::move(ranks));
}

}  // namespace shardbench::testing
