#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/mpi/api.h"

namespace shardbench::comm {

/// MPI in this process: one of the installed implementations, loaded when asked for and initialised
/// once. A program that has initialised MPI itself is joined, and finalises it itself.
class MpiRuntime {
 public:
  /// Loads the implementation that started this process (see load.h) and initialises it. The
  /// same object as long as one is alive; afterwards MPI has been finalised and start() throws.
  /// Throws UserError: built without MPI, library missing, too few thread guarantees, or a library
  /// that does not belong to the launcher.
  static std::shared_ptr<MpiRuntime> start();

  /// Over a given table of functions, whose processes the launcher says are `expected_ranks` (0:
  /// it does not say). Collective over all processes. `api` must outlive it.
  MpiRuntime(const shardbench_mpi_api& api, int expected_ranks);
  /// Finalises MPI (collective) unless the program initialised it itself or abandon() was called.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  /// "openmpi" or "mpich".
  std::string_view implementation() const { return api_.implementation; }
  /// One line of the library's own: "Open MPI v4.1.4, ...".
  std::string library_version() const;

  /// Every rank's text, by rank. Collective; not while another thread does the same. Throws
  /// JobAborted naming the ranks whose texts have not come after `timeout`.
  std::vector<std::string> all_gather_text(
      std::string_view text, std::chrono::milliseconds timeout = std::chrono::minutes(5));

  /// The job has failed: peers may be gone, so MPI is not finalised any more.
  void abandon() { abandoned_ = true; }
  /// Ends all processes of the job through MPI_Abort.
  void abort(int exit_code);

  /// Holds `memory` to the end: MPI may still write to it.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

  const shardbench_mpi_api& api() const { return api_; }
  /// Held around every call of the table but abort: MPI is used by one thread at a time.
  std::mutex& mutex() { return mutex_; }
  /// Throws JobAborted with the library's text unless `code` is 0. `what` was being done.
  void check(int code, std::string_view what) const;

 private:
  void require_usable(int thread_safe, int expected_ranks);

  const shardbench_mpi_api& api_;
  std::mutex mutex_;
  shardbench_mpi_comm comm_ = 0;  ///< own duplicate of the world, for texts
  int rank_ = 0;
  int world_size_ = 1;
  bool joined_ = false;
  std::atomic<bool> abandoned_{false};
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace shardbench::comm
