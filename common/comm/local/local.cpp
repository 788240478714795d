#include "common/comm/local/local.h"

#include "common/comm/plain_memory.h"
#include "common/comm/reduce.h"
#include "common/comm/segments.h"
#include "common/core/error.h"
#include "common/memory/category.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using sharding::ShardLayout;

/// A call that was complete when it was issued.
class DoneCall : public Work::State {
 public:
  DoneCall(Clock::time_point issued, Clock::time_point completed) : issued_(issued) {
    timing_.move_ns = std::chrono::nanoseconds(completed - issued).count();
    timing_.completed_ns = std::chrono::nanoseconds(completed.time_since_epoch()).count();
  }
  void wait(Goal, Deadline) override {}
  bool reached(Goal) override { return true; }
  Clock::time_point last_arrival() const override { return issued_; }
  void poll() override {}
  WorkTiming timing() const override { return timing_; }

 private:
  Clock::time_point issued_;
  WorkTiming timing_;
};

class LocalCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string_view backend() const override { return "local"; }

  Work all_gather(const ShardLayout& layout, ConstBuffer shard, Buffer full, CallTag) override {
    return spread(layout, 0, shard, full);
  }
  Work broadcast(const ShardLayout& layout, int root, ConstBuffer shard, Buffer full,
                 CallTag) override {
    return spread(layout, root, shard, full);
  }
  Work reduce_scatter(const ShardLayout& layout, ConstBuffer full, Buffer shard, ReduceOp op,
                      bool accumulate, CallTag) override {
    return collect(layout, 0, full, shard, op, accumulate);
  }
  Work reduce(const ShardLayout& layout, int root, ConstBuffer full, Buffer shard, ReduceOp op,
              bool accumulate, CallTag) override {
    return collect(layout, root, full, shard, op, accumulate);
  }
  Work all_reduce(Buffer data, ReduceOp op, CallTag) override {
    check_alive();
    check_reducible(data.dtype, op);
    return done_since(Clock::now());  // the sum over one rank is its own value
  }
  Work barrier(CallTag) override {
    check_alive();
    return done_since(Clock::now());
  }

  SymmetricMemory symmetric_empty(std::size_t bytes) override { return plain_memory(bytes); }
  SymmetricMemory shared_empty(std::size_t bytes, std::size_t own_bytes) override {
    return plain_memory(bytes, own_bytes, memory::current_category());
  }

  void abort(std::string_view message) override {
    if (abort_message_.empty()) abort_message_ = message.empty() ? "aborted" : message;
  }
  void quiesce() override { check_alive(); }

 private:
  void check_alive() const {
    if (!abort_message_.empty()) throw JobAborted(abort_message_);
  }

  void check(const ShardLayout& layout, int root, const ConstBuffer& shard,
             const ConstBuffer& full) const {
    check_alive();
    SHARDBENCH_CHECK_EQ(layout.world_size(), 1);
    SHARDBENCH_CHECK_EQ(root, 0);
    SHARDBENCH_CHECK(shard.dtype == full.dtype, "shard is {}, full buffer {}", name_of(shard.dtype),
                     name_of(full.dtype));
    SHARDBENCH_CHECK_GE(shard.count, layout.shard_extent(0));
    SHARDBENCH_CHECK_GE(full.count, layout.full_extent());
  }

  static Work done_since(Clock::time_point issued) {
    return Work(std::make_shared<DoneCall>(issued, Clock::now()));
  }

  Work spread(const ShardLayout& layout, int root, ConstBuffer shard, Buffer full) const {
    check(layout, root, shard, full);
    const auto issued = Clock::now();
    const std::size_t element = size_of(full.dtype);
    spread_segments(layout.segments(0), element, static_cast<const std::byte*>(shard.data),
                    static_cast<std::byte*>(full.data),
                    static_cast<std::size_t>(layout.total()) * element);
    return done_since(issued);
  }

  Work collect(const ShardLayout& layout, int root, ConstBuffer full, Buffer shard, ReduceOp op,
               bool accumulate) const {
    check(layout, root, shard, full);
    check_reducible(full.dtype, op);
    const auto issued = Clock::now();
    const auto element = static_cast<std::int64_t>(size_of(full.dtype));
    for (const sharding::Segment& segment : layout.segments(0)) {
      const void* const source =
          static_cast<const std::byte*>(full.data) + segment.full_offset * element;
      void* const target = static_cast<std::byte*>(shard.data) + segment.shard_offset * element;
      reduce_elements(full.dtype, op, {&source, 1}, {&target, 1}, segment.count, accumulate);
    }
    return done_since(issued);
  }

  std::string abort_message_;
};

}  // namespace

std::shared_ptr<const WireMatrix> local_wire_matrix() {
  class Nothing final : public WireMatrix {
    std::int64_t bytes(CollectiveKind, Phase, int, int) const override { return 0; }
    std::int64_t staging_bytes(CollectiveKind, Phase, int) const override { return 0; }
  };
  return std::make_shared<Nothing>();
}

std::unique_ptr<Communicator> make_local() { return std::make_unique<LocalCommunicator>(); }

}  // namespace shardbench::comm
