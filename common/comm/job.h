#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/kind.h"
#include "common/core/phase.h"

namespace shardbench::comm {

/// Why a job ended early: one record per job, the first writer wins.
struct AbortRecord {
  int rank = -1;  ///< who it is about (-1: nobody in particular)
  Phase phase = Phase::kInit;
  std::string unit;
  std::string collective;  ///< kind it was in or waited for, "" if none
  std::int64_t sequence = -1;
  std::string message;
  enum class Reason { kThrew, kLost, kTimeout, kRequested } reason = Reason::kThrew;
};

/// The shared segment of one job: one memfd mapping, made by the launcher before it forks, with no
/// name that could leak. Holds the abort record, each rank's position, the collectives' slots, the
/// wire matrix, and one arena of symmetric memory per rank (addressed by offsets, grown on demand).
class Job {
 public:
  struct Options {
    int world_size = 1;
    std::chrono::milliseconds timeout{300'000};  ///< default deadline of every wait
    bool guard_peers =
        false;  ///< peers' arenas are PROT_NONE outside counted copies (forked ranks)
  };
  static std::shared_ptr<Job> create(const Options& options);
  virtual ~Job() = default;

  virtual int world_size() const = 0;
  /// Where the rank is now: shown when it dies or stalls. Cheap (a few stores).
  virtual void set_position(int rank, Phase phase, std::string_view unit) = 0;
  /// Which collective the rank waits in now: part of its position. Cheap.
  virtual void enter_collective(int rank, CollectiveKind kind, std::int64_t sequence) = 0;
  virtual void leave_collective(int rank) = 0;
  /// How far the job is, in units of its own (steps): for the launcher's progress display; also
  /// counts as a sign of life of `rank`.
  virtual void set_progress(int rank, std::int64_t done) = 0;
  virtual std::int64_t progress() const = 0;
  /// First call wins; wakes every waiting rank.
  virtual void abort(const AbortRecord& record) = 0;
  virtual std::optional<AbortRecord> aborted() const = 0;
  /// Throws JobAborted with the record's message if the job has ended. Cheap.
  virtual void check_alive() const = 0;
  /// Default deadline of every wait.
  virtual std::chrono::milliseconds timeout() const = 0;
  /// The rank's last position and the collective it is in, as an unfinished record.
  virtual AbortRecord position_of(int rank) const = 0;
};

/// "rank 1 (phase backward, unit 'h.3', in all_reduce #17)".
std::string describe_position(const Job& job, int rank);

/// How the ranks of a job ended.
struct JobOutcome {
  bool ok = false;
  std::optional<AbortRecord> failure;  ///< what came first
  int signal = 0;                      ///< SIGINT or SIGTERM that the launcher received, or 0
  std::vector<std::string> results;    ///< what each rank's function returned ("" if it did not)
};

/// Forks one process per rank (each dies with the launcher), runs `rank_main`, waits for all, and
/// brings their return values back through anonymous memory. A rank that throws, exits, is killed
/// or stalls ends the job: the others are told through the abort record and killed if they do not
/// end within seconds. The calling process touches nothing else; no child, file or port is left.
/// `on_progress`, if given, is called in the launcher with Job::progress() whenever it has grown.
JobOutcome run_forked(std::shared_ptr<Job> job,
                      const std::function<std::string(int rank)>& rank_main,
                      const std::function<void(std::int64_t done)>& on_progress = {});

/// The same with ranks as threads of this process, for tests (a kill cannot be survived there).
JobOutcome run_threads(std::shared_ptr<Job> job,
                       const std::function<std::string(int rank)>& rank_main);

}  // namespace shardbench::comm
