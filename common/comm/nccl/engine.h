#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/job.h"
#include "common/comm/nccl/call.h"
#include "common/comm/nccl/cuda_stream.h"
#include "common/comm/nccl/link.h"
#include "common/comm/nccl/nccl.h"
#include "common/comm/nccl/watch.h"

namespace shardbench::comm {

/// Queues the calls of one rank on a communication stream of their own and sees them complete. Used
/// by one thread; only look() runs on the watch's.
class NcclEngine : public std::enable_shared_from_this<NcclEngine> {
 public:
  NcclEngine(std::shared_ptr<Job> job, int rank, const NcclOptions& options);

  int rank() const { return rank_; }
  int world_size() const { return job_->world_size(); }
  Job& job() const { return *job_; }
  DeviceHooks& hooks() const { return hooks_; }

  /// Makes the NCCL communicator; collective. Throws JobAborted.
  void join(const ExchangeTexts& exchange);
  std::shared_ptr<NcclCall> issue(CallSpec spec);
  /// Orders the caller's current stream after the call; blocks where its result is for the host.
  void wait(NcclCall& call, Deadline deadline);
  void wait_on_host(NcclCall& call, Deadline deadline);
  /// Takes note of what has completed. Throws JobAborted.
  void poll();
  void quiesce();
  void abort(std::string_view message);
  /// Ends the communicator: in order, or at once by aborting it. Waits throw from now on.
  void shut_down(bool in_order);

 private:
  /// What is being waited for: in an error, and in the abort record.
  struct Subject {
    AbortRecord record;  ///< phase, unit, collective, sequence
    std::string text;
  };

  // engine.cpp: issue and completion.
  std::byte* on_device(std::byte* data, std::size_t bytes, std::optional<HostMirror>& mirror);
  void await_results_in(const std::byte* data, std::size_t bytes);
  void start(NcclCall& call);
  void start_barrier(const NcclCall& call);
  void submit(const NcclCall& call, const std::byte* source, std::byte* target, bool packed);
  void add_own_pieces(const NcclCall& call, const std::byte* packed, std::byte* target);
  void finish(NcclCall& call);
  CopyContext copy_context();

  // wait.cpp: blocking, errors, the watch.
  void block(const std::function<bool()>& done, const Subject& subject, Deadline deadline);
  Subject subject_of(const NcclCall& call) const;
  AbortRecord record_of_timeout(const Subject& subject, std::chrono::nanoseconds waited) const;
  AbortRecord record_of_error(const Subject& subject, NcclCode code);
  [[noreturn]] void fail(const AbortRecord& record);
  bool look();
  std::shared_ptr<NcclCall> oldest_unfinished();

  std::shared_ptr<Job> job_;
  int rank_;
  CudaApi& cuda_;
  NcclApi& nccl_;
  DeviceHooks& hooks_;
  int device_;
  CudaStream stream_;  ///< collectives
  CudaStream copies_;  ///< between host and device
  NcclLink link_;
  std::int64_t next_sequence_ = 0;
  bool shut_down_ = false;

  std::mutex pending_mutex_;                       ///< the watch looks at pending_ too
  std::deque<std::shared_ptr<NcclCall>> pending_;  ///< in the order issued

  // Of the watch alone.
  std::int64_t watched_sequence_ = -1;
  std::chrono::steady_clock::time_point watched_since_{};
  std::optional<Watch> watch_;
};

}  // namespace shardbench::comm
