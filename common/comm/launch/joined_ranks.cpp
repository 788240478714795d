#include "common/comm/launch/joined_ranks.h"

#include <algorithm>
#include <utility>

#include "common/comm/launch/outcome.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/core/rank_context.h"

namespace shardbench::comm {
namespace {

class JoinedRanks : public Ranks {
 public:
  JoinedRanks(Group& group, WideBackends wide) : group_(group), wide_(std::move(wide)) {}

  std::string backend_for(const RanksRequest& request) const override {
    if (request.world_size != group_.world_size()) {
      throw UserError::format("--world {}: the launcher started {} ranks; nearest: {}",
                              request.world_size, group_.world_size(), group_.world_size());
    }
    const int hosts = 1 + *std::max_element(group_.hosts().begin(), group_.hosts().end());
    std::string backend = request.backend;
    if (backend == "auto") backend = hosts > 1 ? "mpi" : "shm";
    if (backend == "shm" && hosts > 1) {
      throw UserError::format(
          "--backend shm: the ranks are on {} hosts, which share no memory; "
          "use --backend mpi",
          hosts);
    }
    if (backend == "mpi" && !wide_.mpi) {
      throw UserError::format("--backend mpi: {}", wide_.why_no_mpi);
    }
    if (backend == "nccl" && !wide_.nccl) {
      throw UserError::format("--backend nccl: {}", wide_.why_no_nccl);
    }
    if (backend == "nccl" && wide_.require_nccl) wide_.require_nccl(group_);
    return backend == "shm" && request.world_size == 1 ? "local" : backend;
  }

  JobOutcome run(const RanksRequest& request, const RankMain& rank_main,
                 const OnProgress& on_progress) override {
    const std::string backend = backend_for(request);
    const Seat seat{group_.job(), group_.rank(), [this, backend, on_device = request.on_device] {
                      return connect(backend, on_device);
                    }};
    rank_context() = {group_.rank(), group_.world_size(), ""};
    return bring_together([&] { return rank_main(seat); }, on_progress);
  }

  JobOutcome run_alone(std::chrono::milliseconds timeout, const RankMain& rank_main,
                       const OnProgress& on_progress, bool on_device) override {
    SHARDBENCH_CHECK(!on_device || wide_.device_alone);
    const auto body = [&] {
      if (group_.rank() != 0) return std::string();
      Job::Options options;
      options.timeout = timeout;
      const std::shared_ptr<Job> job = Job::create(options);
      return rank_main({job, 0, [&] {
                          return on_device ? wide_.device_alone(group_, job)
                                           : Transport{make_local(), local_wire_matrix(), {}};
                        }});
    };
    JobOutcome outcome = bring_together(body, on_progress);
    if (outcome.ok) outcome.results.resize(1);
    return outcome;
  }

  int launched_world_size() const override { return group_.world_size(); }
  bool speaks() const override { return group_.rank() == 0; }

 private:
  Transport connect(const std::string& backend, bool on_device) {
    if (backend == "local") return {make_local(), local_wire_matrix(), {}};
    if (backend == "mpi") return wide_.mpi(group_);
    if (backend == "nccl") return wide_.nccl(group_, on_device);
    return {make_shm(group_.job(), group_.rank()), wire_matrix(group_.job()), {}};
  }

  /// Every process's text on every process, or why the job ended.
  JobOutcome bring_together(const std::function<std::string()>& body, const OnProgress&) {
    JobOutcome outcome;
    try {
      group_.job()->check_alive();
      outcome.results = group_.exchange(body());
      outcome.ok = true;
      return outcome;
    } catch (const JobAborted&) {  // the record says why
      SHARDBENCH_CHECK(group_.job()->aborted().has_value());
    } catch (const UserError& error) {
      abort(AbortRecord::Reason::kRequested, error);
    } catch (const std::exception& error) {
      abort(AbortRecord::Reason::kThrew, error);
    }
    outcome.failure = group_.job()->aborted();
    if (outcome.failure) group_.abort(*outcome.failure);  // those who wait for a text hear of it
    return outcome;
  }

  void abort(AbortRecord::Reason reason, const std::exception& error) {
    AbortRecord record = group_.job()->position_of(group_.rank());
    record.reason = reason;
    record.message = message_of(error);
    group_.abort(record);
  }

  Group& group_;
  WideBackends wide_;
};

}  // namespace

std::unique_ptr<Ranks> joined_ranks(Group& group, WideBackends wide) {
  return std::make_unique<JoinedRanks>(group, std::move(wide));
}

}  // namespace shardbench::comm
