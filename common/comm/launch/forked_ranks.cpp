#include "common/comm/launch/ranks.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

class ForkedRanks : public Ranks {
 public:
  std::string backend_for(const RanksRequest& request) const override {
    if (request.backend == "mpi" || request.backend == "nccl") {
      throw UserError::format(
          "--backend {} needs ranks that a launcher starts: mpirun -n {} shardbench ...{}",
          request.backend, request.world_size,
          request.backend == "nccl" ? ", or torchrun --no-python" : "");
    }
    return request.world_size == 1 ? "local" : "shm";
  }

  JobOutcome run(const RanksRequest& request, const RankMain& rank_main,
                 const OnProgress& on_progress) override {
    const bool alone = backend_for(request) == "local";
    Job::Options options;
    options.world_size = request.world_size;
    options.timeout = request.timeout;
    const std::shared_ptr<Job> job = Job::create(options);
    const auto seat_of = [&](int rank) {
      return Seat{job, rank, [&job, rank, alone] {
                    return alone ? Transport{make_local(), local_wire_matrix(), {}}
                                 : Transport{make_shm(job, rank), wire_matrix(job), {}};
                  }};
    };
    return run_forked(
        job, [&](int rank) { return rank_main(seat_of(rank)); }, on_progress);
  }

  JobOutcome run_alone(std::chrono::milliseconds timeout, const RankMain& rank_main,
                       const OnProgress& on_progress, bool on_device) override {
    return run({1, timeout, on_device ? "nccl" : "auto", on_device}, rank_main, on_progress);
  }

  int launched_world_size() const override { return 0; }
  bool speaks() const override { return true; }
};

}  // namespace

void refuse_link(bool emulated, const std::string& backend) {
  if (!emulated || backend == "shm" || backend == "local") return;
  throw UserError::format(
      "--link emulates a network between ranks of one machine: take --backend shm, not {}",
      backend);
}

std::unique_ptr<Ranks> forked_ranks() { return std::make_unique<ForkedRanks>(); }

}  // namespace shardbench::comm
