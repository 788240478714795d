#include "common/comm/mpi/mpi.h"

#include <exception>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/options.h"
#include "common/comm/plain_memory.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

class MpiCommunicator : public SpecCommunicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<Job> job,
                  const MpiOptions& options)
      : exceptions_(std::uncaught_exceptions()), runtime_(std::move(runtime)) {
    SHARDBENCH_CHECK_EQ(job->world_size(), runtime_->world_size());
    engine_ = std::make_shared<MpiEngine>(runtime_, std::move(job), options);
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

  SymmetricMemory symmetric_empty(std::size_t bytes) override { return plain_memory(bytes); }

  void abort(std::string_view message) override {
    AbortRecord record = engine_->job().position_of(rank());
    record.reason = AbortRecord::Reason::kRequested;
    record.message = message;
    runtime_->abandon();
    engine_->job().abort(record);
  }

  void quiesce() override { engine_->quiesce(); }

  std::shared_ptr<const WireMatrix> counts() const { return engine_->counts(); }

 protected:
  Work issue(CallSpec spec) override { return Work(engine_->issue(std::move(spec))); }

 private:
  int exceptions_;
  std::shared_ptr<MpiRuntime> runtime_;
  std::shared_ptr<MpiEngine> engine_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job, const MpiOptions& options) {
  return std::make_unique<MpiCommunicator>(std::move(runtime), std::move(job), options);
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
