#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/job.h"
#include "common/comm/recorder.h"
#include "common/memory/tracker.h"
#include "common/train/config.h"

namespace shardbench::train {

/// One optimizer step of one rank. Times in ns.
struct StepRecord {
  double loss = 0;           ///< mean over the global batch, the same on every rank
  double gradient_norm = 0;  ///< of the averaged gradient, before clipping; NaN in a skipped step
  double loss_scale = 1;     ///< that this step had
  bool skipped = false;      ///< a gradient overflowed on some rank: no weight has changed
  std::int64_t step_ns = 0;  ///< forward + backward + optimizer, all micro-batches
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t optimizer_ns = 0;
  std::int64_t comm_ns = 0;       ///< with a link: from issue to completion, union over calls
  std::int64_t exposed_ns = 0;    ///< in waits: for peers and moving bytes
  std::int64_t peer_wait_ns = 0;  ///< the part of it that waits for peers or the link
  std::int64_t minor_faults = 0;
  std::int64_t system_allocations = 0;  ///< memory that the allocator asked the system for
};

/// Order-free digests of one parameter and what belongs to it: sums of mixed (index, bits) over the
/// elements this rank owns, so that digests of shards add up to the digest of the whole.
struct ParameterDigest {
  std::uint64_t value = 0;
  std::uint64_t first_moment = 0;
  std::uint64_t second_moment = 0;
  std::uint64_t first_gradient = 0;  ///< averaged gradient of the first step that was not skipped
};

struct MemoryReport {
  memory::CategoryBytes peak_by_category{};
  memory::CategoryBytes at_peak{};
  memory::CategoryBytes between_steps{};  ///< live after the last optimizer step
  std::int64_t peak = 0;                  ///< later steps
  std::int64_t first_step_peak = 0;
  std::int64_t init_peak = 0;  ///< while weights got their values; before optimizer state
  Phase peak_phase = Phase::kInit;
  std::string peak_unit;
  std::int64_t padding = 0;  ///< alignment padding inside the persistent categories
  std::int64_t rss_start = 0;
  std::int64_t rss_peak = 0;  ///< VmHWM: counts peers' pages that this rank touched
  std::int64_t pss_peak = 0;  ///< proportional set size, sampled after the measured steps
};

/// What one rank brings back from a run.
struct RankResult {
  int rank = 0;
  std::int64_t pid = 0;
  std::vector<StepRecord> steps;          ///< warm-up included
  int shortest_rank = 0;                  ///< whose data end first, when steps are missing
  std::vector<double> evaluation_losses;  ///< one per evaluation, in order
  std::vector<int> evaluation_steps;
  MemoryReport memory;
  std::vector<comm::TrafficEntry> traffic;  ///< of one measured step (all must be equal)
  bool traffic_steady = true;               ///< every measured step sent the same
  std::vector<comm::CallRecord> calls;      ///< of the last measured step
  std::vector<ParameterDigest> digests;     ///< by parameter index
  bool replicated = true;                   ///< digests cover whole parameters on every rank
  /// Digests of weights that this rank has whole between steps, whoever owns them, as operations
  /// read them (widened to fp32); by parameter index, empty where weights are sharded.
  std::vector<std::uint64_t> whole_values;
  std::vector<std::uint64_t> buffer_digests;  ///< by buffer, after all took rank 0's
  std::vector<std::string> unused_parameters;
  std::vector<memory::TimelinePoint> timeline;
};

std::string serialize(const RankResult& result);
RankResult deserialize(const std::string& text);

/// One run of one strategy: results of all ranks, or why it failed.
struct StrategyRun {
  RunConfig config;
  std::vector<RankResult> ranks;
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
  /// When the ranks agreed to stop early, since one's data end: one line; else empty. config.steps
  /// is then what was done.
  std::string stopped_early;
};

/// The single-process references of a run.
struct ReferenceResult {
  std::vector<StepRecord> steps;  ///< reference A
  std::vector<double> evaluation_losses;
  std::vector<ParameterDigest> digests;
  std::vector<std::string> parameter_names;
  std::vector<std::uint64_t> whole_values;  ///< as RankResult's
  std::vector<std::uint64_t> buffer_digests;
  std::vector<std::string> buffer_names;
  /// Whether reference B ran: not for models with buffers, whose batch statistics depend on how the
  /// batch is cut, and in fp32 only, since its bounds are those of fp32's rounding.
  bool whole_batch = true;
  // Reference B against A.
  double gradient_max_rel_diff = 0;  ///< step 1, largest over tensors
  std::string gradient_worst_tensor;
  double norm_rel_diff = 0;           ///< gradient norm, step 1
  double parameter_rel_distance = 0;  ///< after the last step, shown only
  bool gradients_close = true;        ///< within the bounds of the parity gate
};
std::string serialize(const ReferenceResult& result);
ReferenceResult deserialize_reference(const std::string& text);

std::string serialize(const ops::TuningTable& table);
ops::TuningTable deserialize_tuning(const std::string& text);

/// Bounds between references A and B: relative, per tensor, and of the whole gradient's norm.
inline constexpr double kGradientBound = 1e-5;
inline constexpr double kNormBound = 1e-6;

/// Verdict of one run against the references.
struct Parity {
  bool ok = false;
  bool bit_equal = false;
  std::string first_tensor;  ///< first tensor, or "loss of step N", that differs
  std::string detail;        ///< one line for people
  std::uint64_t hash = 0;    ///< parameters and moments in canonical order
};
Parity judge(const StrategyRun& run, const ReferenceResult& reference);

}  // namespace shardbench::train
