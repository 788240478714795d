#include "common/comm/launch/launched.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "common/comm/launch/join.h"
#include "common/comm/launch/joined_ranks.h"
#include "common/comm/mpi/mpi.h"
#include "common/comm/mpi/runtime.h"
#include "common/comm/nccl/load.h"
#include "common/comm/nccl/over_group.h"
#include "common/core/error.h"
#include "common/core/log.h"

namespace shardbench::comm {
namespace {

/// MPI_Init comes back only when every process has called it: ends this one when that takes longer
/// than `limit`.
class StartWatch {
 public:
  explicit StartWatch(std::chrono::milliseconds limit) : thread_([this, limit] { run(limit); }) {}
  ~StartWatch() {
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void run(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return started_; })) return;
    std::fprintf(stderr,
                 "shardbench: MPI has not started within %.3g s: a rank has not joined (see what "
                 "the launcher says of it)\n",
                 static_cast<double>(limit.count()) / 1e3);
    _exit(3);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;
};

WideBackends wide_backends(const std::shared_ptr<MpiRuntime>& mpi, MpiRoute route) {
  WideBackends wide;
  if (mpi == nullptr) {
    wide.why_no_mpi = "the ranks were not started by MPI: start them with mpirun -n N";
  } else {
    wide.mpi = [mpi, route](Group& group) {
      std::unique_ptr<Communicator> ranks = make_mpi(mpi, group, route);
      std::shared_ptr<const WireMatrix> wire = mpi_wire_matrix(*ranks);
      return Transport{std::move(ranks), std::move(wire), {}};
    };
  }
  if (has_gpu_library()) {
    wide.nccl = nccl_transport;
    wide.device_alone = nccl_transport_alone;
    wide.require_nccl = require_device;
  } else {
    wide.why_no_nccl =
        "this build has no GPU library: install the CUDA toolkit, run ./shardbench setup nccl and "
        "build again";
  }
  return wide;
}

}  // namespace

Launched join_launched(const LaunchEnvironment& found, std::chrono::milliseconds timeout,
                       const OpenStore& open_store,
                       const std::function<void(int rank, const AbortRecord& record)>& on_lost) {
  SHARDBENCH_CHECK(found.launcher != Launcher::kNone);
  const std::string route_text = read_environment("SHARDBENCH_MPI_ROUTE").value_or("auto");
  const MpiRoute route = parse_route(route_text);
  Launched launched;
  JoinOptions options;
  options.timeout = timeout;
  if (found.launcher == Launcher::kMpi) {
    {
      const StartWatch watch(timeout);
      launched.mpi = MpiRuntime::start();
    }
    options.rank = launched.mpi->rank();
    options.world_size = launched.mpi->world_size();
    options.share = [&launched, timeout](std::string_view text) {
      return launched.mpi->all_gather_text(text, timeout).front();
    };
  } else {
    options.rank = found.rank;
    options.world_size = found.world_size;
    options.extra_address = found.master_address;
    options.share = open_store(found, timeout);
  }
  if (on_lost) {
    options.on_lost = [on_lost, rank = options.rank](const AbortRecord& record) {
      on_lost(rank, record);
    };
  }
  try {
    launched.group = join(options);
  } catch (...) {
    if (launched.mpi != nullptr) launched.mpi->abandon();  // not everybody is there to finalise it
    throw;
  }
  if (launched.mpi != nullptr) {
    require_equal(*launched.group, {{"SHARDBENCH_MPI_ROUTE", route_text}});
    const std::string warning = placement_warning(launched.group->hosts());
    if (options.rank == 0 && route != MpiRoute::kFlat && !warning.empty()) {
      log_warning("{}", warning);
    }
  }
  launched.ranks = joined_ranks(*launched.group, wide_backends(launched.mpi, route));
  return launched;
}

}  // namespace shardbench::comm
