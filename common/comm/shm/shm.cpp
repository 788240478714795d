#include "common/comm/shm/shm.h"

#include <exception>

#include "common/comm/shm/engine.h"
#include "common/core/error.h"
#include "common/memory/tracker.h"

namespace shardbench::comm {
namespace {

/// A block of another rank's arena.
class Borrowed : public SymmetricMemory::Owner {
 public:
  Borrowed(std::shared_ptr<SegmentJob> job, std::size_t own_bytes)
      : job_(std::move(job)), bytes_(static_cast<std::int64_t>(own_bytes)) {
    memory::tracker().add(category_, bytes_);
  }
  void release(void*) override { memory::tracker().remove(category_, bytes_); }

 private:
  std::shared_ptr<SegmentJob> job_;  ///< keeps it mapped
  std::int64_t bytes_;
  memory::Category category_ = memory::current_category();
};

class ShmCommunicator : public SpecCommunicator {
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

  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    return engine_->heap().allocate(bytes);
  }

  /// The block lies in rank 0's arena; who touches a page first gives it its memory.
  SymmetricMemory shared_empty(std::size_t bytes, std::size_t own_bytes) override {
    if (job_->options().guard_peers) {
      throw UserError("--collectives in-place: this build keeps peers' memory unreadable");
    }
    SymmetricMemory block;
    std::int64_t offset = -1;
    if (rank_ == 0) {
      block = engine_->heap().allocate(bytes, own_bytes);
      offset = static_cast<std::int64_t>(engine_->heap().offset_of(block.data()));
    }
    all_reduce({&offset, 1, DType::kInt64}, ReduceOp::kMax, {"shared memory", Phase::kMetrics})
        .wait_released();
    if (rank_ == 0) return block;
    return {std::make_shared<Borrowed>(job_, own_bytes), job_->segment().arena(0) + offset, bytes};
  }

  void abort(std::string_view message) override {
    AbortRecord record = job_->position_of(rank_);
    record.reason = AbortRecord::Reason::kRequested;
    record.message = message;
    job_->abort(record);
  }

  void quiesce() override { engine_->quiesce(); }

 protected:
  Work issue(CallSpec spec) override { return Work(engine_->issue(std::move(spec))); }

 private:
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
