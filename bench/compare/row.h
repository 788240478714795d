#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/repetition.h"
#include "bench/compare/statistics.h"
#include "common/sharding/formulas.h"
#include "common/train/limit.h"
#include "common/train/registry.h"
#include "common/train/result.h"

namespace shardbench::bench {

/// Counted traffic of one (rank, phase, kind) of one step, with the closed form beside it.
struct TrafficRow {
  int rank = 0;
  Phase phase = Phase::kInit;
  comm::CollectiveKind kind = comm::CollectiveKind::kBarrier;
  std::string dtype;  ///< of the calls: "fp32"; "mixed" for several; empty: not known
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;
  std::int64_t algo_bytes = 0;
  comm::WireBytes wire;                       ///< -1: the backend counts nothing
  std::optional<std::int64_t> formula_bytes;  ///< absent for `metrics`
  std::int64_t formula_calls = 0;

  bool wire_counted() const { return wire.sent >= 0; }
  /// Counted by definition, counted where bytes move, and calculated: all the same.
  bool agrees() const {
    return !formula_bytes ||
           (algo_bytes == *formula_bytes && (!wire_counted() || wire.sent == algo_bytes));
  }
};

/// Figures of one rank. Times are medians over the measured steps of all repetitions.
struct RankFigures {
  int rank = 0;
  std::int64_t pid = 0;
  train::MemoryReport memory;
  sharding::FormulaMemory formula;
  std::int64_t persistent_bytes = 0;  ///< booked between steps, padding included
  std::int64_t sent_bytes = 0;        ///< algo bytes of one step, `metrics` left out
  std::int64_t formula_sent_bytes = 0;
  std::int64_t calls = 0;  ///< of one step, `metrics` and barriers left out
  double comm_ns = 0;
  double exposed_ns = 0;
  double overlap_ns = 0;  ///< communication that compute hides
  double peer_wait_ns = 0;
  double minor_faults = -1;        ///< pages first touched in a step; -1: not known
  double system_allocations = -1;  ///< at most in a measured step
};

/// The calls of one (phase, kind) for one unit or bucket in one step, mean over ranks.
struct CallTotal {
  Phase phase = Phase::kInit;
  comm::CollectiveKind kind = comm::CollectiveKind::kBarrier;
  std::string label;  ///< name of the unit or bucket
  double calls = 0;
  double payload_bytes = 0;  ///< of all of them
  double algo_bytes = 0;
  double ns = 0;          ///< from issue to completion, added up
  double exposed_ns = 0;  ///< of that, what the rank stood in its waits
};

/// One strategy doing one job.
struct Row {
  enum class State { kRight, kWrong, kFailed };

  train::RunConfig config;
  sharding::FormulaKind formula = sharding::FormulaKind::kSingle;
  State state = State::kRight;
  std::string reason;  ///< one line, when wrong or failed
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
  int repetitions = 0;  ///< that ended

  bool judged = false;  ///< parity was established
  train::Parity parity;
  bool whole_batch = true;           ///< the reference did the whole batch at once, too
  double gradient_max_rel_diff = 0;  ///< whole batch at once against reference A, step 1
  std::vector<double> losses;        ///< every step, warm-up included
  std::vector<double> gradient_norms;
  std::vector<double> loss_scales;  ///< every step; empty without one
  std::vector<int> skipped_steps;   ///< from 1: a gradient overflowed
  std::vector<double> evaluation_losses;
  std::vector<int> evaluation_steps;
  std::vector<std::string> unused_parameters;
  std::string stopped_early;  ///< one line when a rank's data ended before the last step

  // Times: slowest rank of each measured step. Valid when there was one.
  Summary step;
  double forward_ns = 0;
  double backward_ns = 0;
  double optimizer_ns = 0;
  double tokens_per_s = 0;
  std::vector<RepetitionTimes> by_repetition;  ///< what these times summarize
  std::optional<train::LimitPieces> limit;     ///< the parts of a step by themselves

  std::vector<RankFigures> ranks;  ///< of the last repetition; times of all
  std::vector<TrafficRow> traffic;
  std::vector<CallTotal> call_totals;  ///< of the last measured step
  std::string traffic_error;           ///< counted and calculated bytes differ: where; else empty

  const std::string& strategy() const { return config.strategy; }
  bool right() const { return state == State::kRight; }
  /// Figures of the ranks exist (also for a wrong row, whose times are not shown).
  bool measured() const { return !ranks.empty(); }
  /// Weights are cut among the ranks, so that units are unsharded for their use.
  bool shards_parameters() const {
    return formula == sharding::FormulaKind::kZero3 || formula == sharding::FormulaKind::kFsdp;
  }
  bool shards_gradients() const {
    return shards_parameters() || formula == sharding::FormulaKind::kZero2;
  }
  /// At least the optimizer state is cut among the ranks.
  bool shards_anything() const {
    return shards_gradients() || formula == sharding::FormulaKind::kZero1;
  }
  /// Whole tensors stay at owners, in place of rows of every tensor.
  bool has_owners() const { return shards_anything() && formula != sharding::FormulaKind::kFsdp; }
  /// The first step (from 1) whose loss is no finite number; 0: none.
  int first_bad_loss() const;
  /// Floating-point operations of the model per second and rank, over `peak_tflops` of one rank.
  /// Requires a right row.
  double utilization(double peak_tflops) const;
  /// What a step would take if it were its parts and nothing else: the operations of its
  /// micro-batches, the optimizer over what the fullest rank steps, and a copy of the bytes that a
  /// rank sends. Requires `limit`.
  double limit_ns() const;
  /// Time from issue to completion of the calls of one kind in one step, mean over ranks, ns.
  double kind_ns(Phase phase, comm::CollectiveKind kind) const;

  // Over the ranks: bytes, then ns.
  Spread persistent() const;
  Spread peak() const;
  Spread first_step_peak() const;
  Spread init_peak() const;
  Spread rss_peak() const;
  Spread pss_peak() const;
  Spread sent() const;
  Spread exposed() const;
  Spread comm() const;
  Spread minor_faults() const;        ///< of a measured step
  Spread system_allocations() const;  ///< most in a measured step
  Spread overlap() const;
  /// The rank with the largest peak. Requires measured().
  const RankFigures& peak_rank() const;
  /// The rank that keeps most between steps. Requires measured().
  const RankFigures& fullest_rank() const;
};

/// What a failure says to people: "rank 1 was lost in backward, unit h.3, reduce_scatter (call 17):
/// killed by signal 9 (Killed)". What the record and its message both say is said once.
std::string describe(const comm::AbortRecord& failure);

/// The row of one strategy from its repetitions, at least one, each with its verdict. Only the last
/// may have failed: the row has then failed. Sets state and reason. Throws InvariantError for a run
/// that lacks ranks or steps.
Row make_row(const std::vector<train::StrategyRun>& runs,
             const std::vector<train::Parity>& verdicts, const train::ReferenceResult& reference,
             sharding::FormulaKind formula, const sharding::ModelShape& model);

/// A row that never ran, with why.
Row failed_row(const train::RunConfig& config, sharding::FormulaKind formula,
               const std::optional<comm::AbortRecord>& failure, int signal,
               const std::string& reason);

/// Figures of a single run without references (`run`): parity is left out.
Row measured_row(const train::StrategyRun& run, sharding::FormulaKind formula,
                 const sharding::ModelShape& model);

}  // namespace shardbench::bench
