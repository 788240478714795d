#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/row.h"
#include "bench/compare/statistics.h"
#include "common/train/result.h"

namespace shardbench::bench {

/// One way in which another framework does the job of one of our strategies.
struct PeerKind {
  std::string name;         ///< as --peers takes it: "fsdp2"
  std::string framework;    ///< "torch" or "deepspeed": a name that stands for all of its rows
  std::string title;        ///< "PyTorch FSDP2"
  std::string counterpart;  ///< our strategy that keeps and sends the same: "fsdp"
  bool by_blocks = false;   ///< wraps blocks, not our units; its framework does not stand for it
};

/// All, in the order in which tables show them.
const std::vector<PeerKind>& peer_kinds();
/// Throws UserError naming all names and frameworks.
const PeerKind& peer_kind(const std::string& name);
/// The rows that the items of --peers ask for, in the order of peer_kinds. A framework stands for
/// all its rows whose counterpart is among `strategies`. Throws UserError for an unknown name, a
/// row whose counterpart is not compared, a framework without any row.
std::vector<std::string> choose_peers(const std::vector<std::string>& items,
                                      const std::vector<std::string>& strategies);

/// What one rank of a peer brought back.
struct PeerRank {
  int rank = 0;
  std::int64_t pid = 0;
  std::vector<std::int64_t> step_ns;  ///< every step, warm-up included
  std::vector<double> losses;         ///< of this rank's micro-batches, mean
  std::int64_t rss_start = 0;
  std::int64_t rss_peak = 0;  ///< VmHWM since the model was set up
  std::int64_t pss = 0;       ///< proportional set size after the steps
};

/// One run of a peer: results of all ranks, or why it failed.
struct PeerRun {
  std::vector<PeerRank> ranks;
  std::map<std::string, std::string> versions;
  std::optional<comm::AbortRecord> failure;
  int signal = 0;

  bool failed() const { return failure.has_value() || signal != 0; }
};

/// Bounds of a peer's losses against the reference, relative: same weights and data, other kernels.
/// The first step has seen no update; later ones carry the rounding of all updates before. bf16 has
/// three digits, and frameworks round in different places.
struct LossBounds {
  double first = 1e-5;
  double later = 1e-4;
};
inline LossBounds loss_bounds(DType compute_dtype) {
  return compute_dtype == DType::kFloat32 ? LossBounds{} : LossBounds{1e-2, 1e-2};
}

/// A peer doing one job, under the row of its counterpart.
struct PeerRow {
  std::string peer;  ///< PeerKind::name
  Row::State state = Row::State::kRight;
  std::string reason;  ///< one line, when wrong or failed
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
  int repetitions = 0;

  std::vector<double> losses;  ///< every step, mean over ranks
  double first_loss_diff = 0;  ///< relative to the reference
  double loss_diff = 0;        ///< the largest of all steps
  int worst_step = 0;          ///< where that was, from 1

  Summary step;  ///< of each measured step the slowest rank; valid when right
  double tokens_per_s = 0;
  std::vector<std::vector<std::int64_t>> by_repetition;
  std::vector<PeerRank> ranks;  ///< of the last repetition
  std::map<std::string, std::string> versions;

  const PeerKind& kind() const { return peer_kind(peer); }
  bool right() const { return state == Row::State::kRight; }
  bool measured() const { return !ranks.empty(); }
  double rss_peak() const;  ///< of the rank with most
  double pss() const;       ///< of the rank with most
};

/// The row of a peer from its repetitions, at least one; only the last may have failed. Every one
/// is judged by `reference`, the steps of the single-process reference of the same job.
PeerRow make_peer_row(const std::string& peer, const train::RunConfig& config,
                      const std::vector<PeerRun>& runs,
                      const std::vector<train::StepRecord>& reference);
/// A row that never ran, with why.
PeerRow failed_peer_row(const std::string& peer, int signal, const std::string& reason);

/// As verdict_text and exit_code of our own rows.
std::string verdict_text(const PeerRow& row);
int exit_code(const PeerRow& row);

}  // namespace shardbench::bench
