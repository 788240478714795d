#include "common/comm/shm/shm.h"

#include <exception>

#include "common/comm/reduce.h"
#include "common/comm/shm/engine.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

class ShmCommunicator : public Communicator {
 public:
  ShmCommunicator(std::shared_ptr<SegmentJob> job, int rank)
      : job_(std::move(job)), rank_(rank), exceptions_(std::uncaught_exceptions()) {
    job_->claim_communicator(rank);
    engine_ = std::make_shared<ShmEngine>(job_, rank);
  }

  ~ShmCommunicator() override {
    // Peers may still need this rank's part of calls whose Work was dropped. Not when an exception
    // passes: then the job is about to end.
    if (std::uncaught_exceptions() == exceptions_) {
      try {
        engine_->quiesce();
      } catch (const std::exception&) {  // the job has been aborted, its record says why
      }
    }
    engine_->shut_down();
    job_->drop_communicator(rank_);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return job_->world_size(); }
  std::string_view backend() const override { return "shm"; }

  Work all_gather(const ShardLayout& layout, ConstBuffer shard, Buffer full, CallTag tag) override {
    check(layout, shard, rank_, full);
    CallSpec spec = make(CollectiveKind::kAllGather, layout, full.dtype, tag);
    spec.count = layout.total();
    return issue(std::move(spec), shard.data, full.data);
  }

  Work reduce_scatter(const ShardLayout& layout, ConstBuffer full, Buffer shard, ReduceOp op,
                      bool accumulate, CallTag tag) override {
    check(layout, shard, rank_, full);
    check_reducible(full.dtype, op);
    CallSpec spec = make(CollectiveKind::kReduceScatter, layout, full.dtype, tag);
    spec.count = layout.total();
    spec.op = op;
    spec.accumulate = accumulate;
    return issue(std::move(spec), full.data, shard.data);
  }

  Work all_reduce(Buffer data, ReduceOp op, CallTag tag) override {
    check_reducible(data.dtype, op);
    SHARDBENCH_CHECK(data.count == 0 || data.data != nullptr);
    CallSpec spec = make(CollectiveKind::kAllReduce, {}, data.dtype, tag);
    spec.count = data.count;
    spec.op = op;
    return issue(std::move(spec), data.data, data.data);
  }

  Work broadcast(const ShardLayout& layout, int root, ConstBuffer shard, Buffer full,
                 CallTag tag) override {
    check(layout, shard, root, full);
    CallSpec spec = make(CollectiveKind::kBroadcast, layout, full.dtype, tag);
    spec.count = layout.count(root);
    spec.root = root;
    return issue(std::move(spec), shard.data, full.data);
  }

  Work reduce(const ShardLayout& layout, int root, ConstBuffer full, Buffer shard, ReduceOp op,
              bool accumulate, CallTag tag) override {
    check(layout, shard, root, full);
    check_reducible(full.dtype, op);
    CallSpec spec = make(CollectiveKind::kReduce, layout, full.dtype, tag);
    spec.count = layout.count(root);
    spec.root = root;
    spec.op = op;
    spec.accumulate = accumulate;
    return issue(std::move(spec), full.data, shard.data);
  }

  Work barrier(CallTag tag) override {
    return issue(make(CollectiveKind::kBarrier, {}, DType::kUInt8, tag), nullptr, nullptr);
  }

  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    return engine_->heap().allocate(bytes);
  }

  void abort(std::string_view message) override {
    AbortRecord record = job_->position_of(rank_);
    record.reason = AbortRecord::Reason::kRequested;
    record.message = message;
    job_->abort(record);
  }

  void quiesce() override { engine_->quiesce(); }

 private:
  /// `owner` is the rank whose shard the call is about; only it must bring one.
  void check(const ShardLayout& layout, const ConstBuffer& shard, int owner,
             const ConstBuffer& full) const {
    SHARDBENCH_CHECK_EQ(layout.world_size(), world_size());
    SHARDBENCH_CHECK(owner >= 0 && owner < world_size(), "root {} of {} ranks", owner,
                     world_size());
    const bool sees_all = full.count >= layout.full_extent();
    SHARDBENCH_CHECK(sees_all, "full buffer of {} elements, layout reaches to {}", full.count,
                     layout.full_extent());
    SHARDBENCH_CHECK(full.data != nullptr || layout.full_extent() == 0);
    if (owner != rank_) return;
    SHARDBENCH_CHECK(shard.dtype == full.dtype, "shard is {}, full buffer {}", name_of(shard.dtype),
                     name_of(full.dtype));
    SHARDBENCH_CHECK_GE(shard.count, layout.shard_extent(rank_));
    SHARDBENCH_CHECK(shard.data != nullptr || layout.shard_extent(rank_) == 0);
  }

  static CallSpec make(CollectiveKind kind, const ShardLayout& layout, DType dtype, CallTag tag) {
    CallSpec spec;
    spec.kind = kind;
    spec.layout = layout;
    spec.dtype = dtype;
    spec.label = tag.label;
    spec.phase = tag.phase;
    return spec;
  }

  Work issue(CallSpec spec, const void* source, void* target) {
    spec.source = bytes_of(source);
    spec.target = bytes_of(target);
    return Work(engine_->issue(std::move(spec)));
  }

  std::shared_ptr<SegmentJob> job_;
  int rank_;
  int exceptions_;
  std::shared_ptr<ShmEngine> engine_;
};

class SegmentWireMatrix : public WireMatrix {
 public:
  explicit SegmentWireMatrix(std::shared_ptr<SegmentJob> job) : job_(std::move(job)) {}
  std::int64_t bytes(CollectiveKind kind, Phase phase, int source, int destination) const override {
    return job_->segment().wire(kind, phase, source, destination).load(std::memory_order_relaxed);
  }
  std::int64_t staging_bytes(CollectiveKind kind, Phase phase, int rank) const override {
    return job_->segment().staging(kind, phase, rank).load(std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<SegmentJob> job_;
};

}  // namespace

std::unique_ptr<Communicator> make_shm(std::shared_ptr<Job> job, int rank) {
  return std::make_unique<ShmCommunicator>(as_segment_job(job), rank);
}

std::shared_ptr<const WireMatrix> wire_matrix(std::shared_ptr<Job> job) {
  return std::make_shared<SegmentWireMatrix>(as_segment_job(job));
}

}  // namespace shardbench::comm
