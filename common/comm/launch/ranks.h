#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/job.h"
#include "common/comm/recorder.h"

namespace shardbench::comm {

struct GpuLibrary;

/// The GPU of a rank that computes on one.
struct RankDevice {
  const GpuLibrary* library = nullptr;  ///< null: the rank computes on the CPU
  int number = 0;
};

/// A rank's communicator, and what counts its bytes (null: its backend does not).
struct Transport {
  std::unique_ptr<Communicator> ranks;
  std::shared_ptr<const WireMatrix> wire;
  RankDevice device;  ///< symmetric memory is this one's
};

/// What a rank gets to work with.
struct Seat {
  std::shared_ptr<Job> job;
  int rank = 0;
  std::function<Transport()> connect;  ///< collective; the backend that the request resolved to
};

struct RanksRequest {
  int world_size = 1;
  std::chrono::milliseconds timeout{300'000};  ///< of every wait
  std::string backend = "auto";                ///< auto, shm, mpi or nccl
  bool on_device = false;                      ///< ranks compute on GPUs (nccl only)
};

/// What a rank does; its text is brought back.
using RankMain = std::function<std::string(const Seat&)>;
using OnProgress = std::function<void(std::int64_t done)>;

/// Where ranks come from: this program forks them, or a launcher started one process for each and
/// this is one of them. Everything above works the same way on both.
class Ranks {
 public:
  virtual ~Ranks() = default;

  /// The backend that `request` will use: local, shm, mpi or nccl. Throws UserError when it cannot
  /// be had here, or the world size is not the launcher's.
  virtual std::string backend_for(const RanksRequest& request) const = 0;

  /// Runs `rank_main` on every rank; the outcome is the same in every process that a launcher
  /// started. Never throws for what a rank did.
  virtual JobOutcome run(const RanksRequest& request, const RankMain& rank_main,
                         const OnProgress& on_progress = {}) = 0;
  /// Runs it in one process only, with a job of its own; `results` has one text. `on_device` as in
  /// RanksRequest.
  virtual JobOutcome run_alone(std::chrono::milliseconds timeout, const RankMain& rank_main,
                               const OnProgress& on_progress = {}, bool on_device = false) = 0;

  /// Ranks that a launcher started, 0 if the program makes its own.
  virtual int launched_world_size() const = 0;
  /// Whether this process writes files and to the screen.
  virtual bool speaks() const = 0;
};

/// Throws UserError when a link is to be emulated over a backend that has a real one.
void refuse_link(bool emulated, const std::string& backend);

/// Forks fresh processes for every run (see run_forked); the caller's touches nothing else.
std::unique_ptr<Ranks> forked_ranks();

}  // namespace shardbench::comm
