#include "common/comm/mpi/mpi.h"

#include <algorithm>
#include <exception>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/options.h"
#include "common/comm/plain_memory.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

/// What this rank's messages have moved, and what its host's ranks have moved in shared memory.
class HostCounts : public WireMatrix {
 public:
  HostCounts(std::shared_ptr<const WireMatrix> messages, const HostGrid& grid,
             std::shared_ptr<SegmentJob> host_job)
      : messages_(std::move(messages)), host_job_(std::move(host_job)) {
    for (int local = 0; local < grid.per_host; ++local) {
      neighbours_.push_back(grid.rank_at(grid.host, local));
    }
  }

  std::int64_t bytes(CollectiveKind kind, Phase phase, int source, int destination) const override {
    const int from = number(source);
    const int to = number(destination);
    const std::int64_t messages = messages_->bytes(kind, phase, source, destination);
    if (from < 0 || to < 0) return messages;
    return messages + host_job_->segment().wire(kind, phase, from, to).load();
  }
  std::int64_t staging_bytes(CollectiveKind kind, Phase phase, int rank) const override {
    return messages_->staging_bytes(kind, phase, rank);
  }

 private:
  /// On this host; -1: on another one.
  int number(int rank) const {
    const auto found = std::ranges::find(neighbours_, rank);
    return found == neighbours_.end() ? -1 : static_cast<int>(found - neighbours_.begin());
  }

  std::shared_ptr<const WireMatrix> messages_;
  std::shared_ptr<SegmentJob> host_job_;
  std::vector<int> neighbours_;  ///< ranks of this host
};

class MpiCommunicator : public SpecCommunicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<Job> job,
                  const MpiOptions& options, const HostShare& share)
      : exceptions_(std::uncaught_exceptions()), runtime_(std::move(runtime)) {
    SHARDBENCH_CHECK_EQ(job->world_size(), runtime_->world_size());
    engine_ = std::make_shared<MpiEngine>(runtime_, std::move(job), options, share);
  }

  ~MpiCommunicator() override {
    // Peers may still need this rank's part of calls whose Work was dropped. Not when an exception
    // passes: then the job is about to end.
    if (std::uncaught_exceptions() == exceptions_) {
      try {
        engine_->quiesce();
      } catch (const std::exception&) {  // the job has been aborted, its record says why
      }
    }
    engine_->shut_down();
  }

  int rank() const override { return engine_->rank(); }
  int world_size() const override { return engine_->world_size(); }
  std::string_view backend() const override { return "mpi"; }

  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    const RelayGround* const ground = engine_->ground();
    return ground == nullptr ? plain_memory(bytes) : ground->heap->allocate(bytes);
  }

  void abort(std::string_view message) override {
    AbortRecord record = engine_->job().position_of(rank());
    record.reason = AbortRecord::Reason::kRequested;
    record.message = message;
    runtime_->abandon();
    engine_->job().abort(record);
  }

  void quiesce() override { engine_->quiesce(); }

  std::shared_ptr<const WireMatrix> counts() const {
    const RelayGround* const ground = engine_->ground();
    if (ground == nullptr) return engine_->counts();
    return std::make_shared<HostCounts>(engine_->counts(), ground->grid, ground->host_job);
  }

 protected:
  Work issue(CallSpec spec) override { return Work(engine_->issue(std::move(spec))); }

 private:
  int exceptions_;
  std::shared_ptr<MpiRuntime> runtime_;
  std::shared_ptr<MpiEngine> engine_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job, const MpiOptions& options,
                                       HostShare share) {
  return std::make_unique<MpiCommunicator>(std::move(runtime), std::move(job), options, share);
}

std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime, Group& group,
                                       MpiRoute route) {
  return make_mpi(std::move(runtime), group.job(), {.route = route},
                  {group.hosts(), group.host_job()});
}

std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job) {
  return make_mpi(std::move(runtime), std::move(job), MpiOptions{});
}

std::shared_ptr<const WireMatrix> mpi_wire_matrix(const Communicator& communicator) {
  const auto* mpi = dynamic_cast<const MpiCommunicator*>(&communicator);
  SHARDBENCH_CHECK(mpi != nullptr, "the wire matrix of a {} communicator", communicator.backend());
  return mpi->counts();
}

}  // namespace shardbench::comm
