#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/job.h"

namespace shardbench::comm {

/// Rank 0's text, on every rank. What a launcher offers to find each other: MPI, or a store.
using ShareText = std::function<std::string(std::string_view from_rank_0)>;

/// Where a rank is, as it tells the others now and then.
struct Sign {
  std::uint64_t beat = 0;  ///< has moved on when the rank has
  AbortRecord position;
};

/// What the control plane asks of, and tells, the process it serves. Called from its thread.
struct ControlEvents {
  std::function<Sign()> sign;  ///< of this rank
  /// Where a rank was last, if this process can see it; else what it told last.
  std::function<AbortRecord(int rank, const AbortRecord& told)> last_seen;
  std::function<void(const AbortRecord& record)> abort;  ///< a peer's abort, or a lost peer
};

/// Small messages between the processes of a job, beside the backend that moves the data: one TCP
/// connection from every rank to rank 0. Texts, aborts, signs of life; a connection that ends
/// without a farewell is a lost rank. Rank 0 listens on a free port.
class Control {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds timeout{300'000};
    std::string extra_address;  ///< where rank 0 may be reached besides its interfaces, or ""
    ShareText share;
  };
  /// Connects; every rank calls it. Throws UserError naming the ranks that have not come in time.
  static std::unique_ptr<Control> connect(const Options& options);
  virtual ~Control() = default;

  /// The thread starts: from now on losses are noticed.
  virtual void start(ControlEvents events) = 0;
  /// All ranks' texts, by rank. Collective. While a missing rank shows signs of life its time is
  /// not up. Throws JobAborted.
  virtual std::vector<std::string> exchange(std::string_view text) = 0;
  /// Tells every other rank. Never throws.
  virtual void abort(const AbortRecord& record) noexcept = 0;
  /// What rank `rank` told last.
  virtual Sign sign_of(int rank) const = 0;
  /// A word that belongs to this job alone; the same on every rank.
  virtual const std::string& token() const = 0;
  /// Waits until rank 0 has ended, at most `limit`: it prints what went wrong.
  virtual void await_rank_0(std::chrono::milliseconds limit) = 0;
};

}  // namespace shardbench::comm
