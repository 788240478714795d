#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/job.h"
#include "common/comm/shm/heap.h"
#include "common/comm/shm/segment.h"

namespace shardbench::comm {

/// The one implementation of Job. Besides the shared segment it holds what belongs to this process:
/// the heaps of the ranks that live in it, and whether peers' arenas are closed to it.
class SegmentJob : public Job {
 public:
  explicit SegmentJob(const Options& options);
  /// Joins the job of as many ranks whose segment another process made.
  SegmentJob(const Options& options, Descriptor memory);

  int world_size() const override { return options_.world_size; }
  void set_position(int rank, Phase phase, std::string_view unit) override;
  void enter_collective(int rank, CollectiveKind kind, std::int64_t sequence) override;
  void leave_collective(int rank) override;
  void set_progress(int rank, std::int64_t done) override;
  std::int64_t progress() const override;
  void abort(const AbortRecord& record) override;
  std::optional<AbortRecord> aborted() const override;
  AbortRecord position_of(int rank) const override;

  const Options& options() const { return options_; }
  SharedSegment& segment() const { return *segment_; }
  /// Cheap: one load.
  bool is_aborted() const { return segment_->header().winner.load(std::memory_order_acquire) >= 0; }
  void check_alive() const override;
  std::chrono::milliseconds timeout() const override { return options_.timeout; }

  /// The heap of a rank of this process, made when first asked for.
  std::shared_ptr<SymmetricHeap> heap(int rank);

  /// One communicator per rank at a time: they share the rank's slots.
  void claim_communicator(int rank);
  void drop_communicator(int rank);

  /// Called once in a forked rank: closes peers' arenas if peers are guarded.
  void enter_process(int rank);
  bool guarded() const { return guarded_; }

 private:
  SegmentJob(const Options& options, std::shared_ptr<SharedSegment> segment);

  Options options_;
  std::shared_ptr<SharedSegment> segment_;
  bool guarded_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<SymmetricHeap>> heaps_;
  std::vector<char> claimed_;
};

/// The job behind the interface; throws InvariantError for a foreign implementation.
std::shared_ptr<SegmentJob> as_segment_job(const std::shared_ptr<Job>& job);

/// "2.5 s" or "300 s" or "40 ms".
std::string format_duration(std::chrono::milliseconds duration);

}  // namespace shardbench::comm
