#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/link.h"
#include "common/core/dtype.h"
#include "common/models/config.h"
#include "common/ops/tuning.h"
#include "common/sharding/unit_plan.h"
#include "common/train/loss_scale.h"

namespace shardbench::train {

enum class OptimizerKind { kAdamW, kSgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  int lr_warmup = 0;  ///< steps over which lr rises linearly to its full value
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< on parameters with decay() only
  double momentum = 0.9;      ///< SGD
};

/// Throws UserError unless lr, betas, eps, decay and momentum make sense.
void validate(const OptimizerConfig& config);

/// The learning rate of a step (from 0).
double learning_rate(const OptimizerConfig& config, std::int64_t step);

/// Moments per parameter element: AdamW 2, SGD 1 (its momentum buffer).
int moments_of(const OptimizerConfig& config);

/// When a sharded unit's full weights are given back after forward.
enum class Reshard { kTrue, kFalse, kAuto };  ///< kAuto: all but the root, as FSDP2 does

/// How initial weights come about. Under the two that broadcast, every rank draws from a seed of
/// its own (seed + rank) and then takes rank 0's weights and buffers.
enum class InitMode {
  kDeferred,         ///< each rank makes just what it keeps
  kBroadcast,        ///< rank 0 makes the whole model and sends it at once
  kBroadcastTensor,  ///< the same, one tensor after the other
};
std::string to_string(InitMode mode);  ///< as `--init` spells it
/// Throws UserError naming the valid ones.
InitMode parse_init(const std::string& text);

/// `--collectives`: how bytes come from where they are to where they are needed.
enum class CollectiveMode {
  kDirect,   ///< peers copy from each other's symmetric memory
  kStaged,   ///< every call through staging memory, as for tensors that peers do not reach
  kInPlace,  ///< zero3 and fsdp compute on the weights where their owners keep them: no gathers
};
std::string to_string(CollectiveMode mode);  ///< as `--collectives` spells it
/// Throws UserError naming the valid ones.
CollectiveMode parse_collectives(const std::string& text);

/// Options that strategies read. Which of them a strategy honours is in its README.
struct StrategyOptions {
  sharding::UnitPolicy units;
  Reshard reshard_after_forward = Reshard::kTrue;
  int forward_prefetch = 1;  ///< units gathered ahead
  int backward_prefetch = 1;
  InitMode init = InitMode::kDeferred;
  double bucket_cap_mib = 25;  ///< of fp32 gradients, whatever travels
  double first_bucket_mib = 1;
  /// What operations read and give, and what weights travel as: fp32, bf16 or fp16. Master weights,
  /// the gradients that are kept, moments and buffers are fp32 always.
  DType compute_dtype = DType::kFloat32;
  /// What gradients travel as while they are averaged over ranks.
  DType reduce_dtype = DType::kFloat32;
  /// Steps a unit's weights as soon as its gradients are final, inside backward, so that no
  /// gradient is kept: zero2, zero3 and fsdp, one micro-batch per step, no clipping, no loss scale.
  bool optimizer_in_backward = false;
  /// Gradients of a table that tokens look up, and nothing else uses, travel as token ids and rows,
  /// and no whole gradient of it is written before it is averaged. For fp32 gradients that are
  /// kept.
  bool sparse_embedding = false;
  CollectiveMode collectives = CollectiveMode::kDirect;
};

/// Throws UserError unless prefetch depths, bucket caps and dtypes make sense.
void validate(const StrategyOptions& options);
/// Throws UserError unless there is a loss scale just where fp16 computes or travels: it must have
/// one where it computes.
void validate_loss_scale(const StrategyOptions& options,
                         const std::optional<LossScale>& loss_scale);

/// Throws UserError where an embedding's gradient cannot travel as rows.
void validate_sparse_embedding(const StrategyOptions& options);
/// Throws UserError where the optimizer cannot step inside backward.
void validate_step_in_backward(const StrategyOptions& options, double max_norm, bool loss_scale);

/// `--inject KIND@rank,step,where`: a fault planted for tests and demonstrations.
struct Injection {
  enum class Kind { kThrow, kKill, kExit, kStall, kSlow, kShort } kind = Kind::kThrow;
  int rank = 0;
  int step = 1;  ///< counts from 1; kSlow: 0 means every step; kShort: the first without data
  std::string where = "forward";  ///< a phase name; kShort: "data"
  /// kSlow (`slow:PERCENT`): how long the rank sleeps, in per cent of its previous step (its own
  /// sleep left out; the first step has none before it). Slower, not wrong: parity must hold.
  double percent = 0;
  std::string text;                                 ///< as given
  static Injection parse(const std::string& text);  ///< throws UserError with the valid form
};

/// `--device`: where a rank computes and keeps what it trains.
enum class DeviceKind { kCpu, kCuda };
std::string to_string(DeviceKind device);  ///< as `--device` spells it

/// Everything that defines one training run of one strategy; the same for all ranks.
struct RunConfig {
  models::ModelConfig model;
  std::string strategy = "ddp";
  int world_size = 2;
  std::int64_t batch = 4;  ///< sequences per rank and micro-batch
  std::int64_t seq = 128;
  int warmup = 2;
  int steps = 10;        ///< measured steps after warm-up
  int accumulation = 1;  ///< micro-batches per step
  double max_norm = 0;   ///< 0: no clipping
  std::optional<LossScale> loss_scale;
  OptimizerConfig optimizer;
  StrategyOptions options;
  std::string data;  ///< "synthetic", or a file or folder
  std::uint64_t seed = 1;
  bool deterministic = false;
  ops::TuningTable tuning;  ///< choices that every rank and reference makes
  int threads = 1;
  DeviceKind device = DeviceKind::kCpu;
  std::string backend = "auto";  ///< auto, shm, mpi, nccl
  std::optional<comm::LinkModel> link;
  bool comm_thread = false;  ///< a thread per rank carries its calls (see comm::with_comm_thread)
  double timeout_s = 300;
  std::optional<Injection> inject;
  int eval_every = 0;  ///< `run`: steps between evaluations on held-out text; 0: none
  int eval_batches = 0;
  bool timeline = false;
  std::string rank_logs;  ///< folder for a file of every rank (see RankLog); empty: none

  /// All steps of the run, warm-up included.
  int all_steps() const { return warmup + steps; }
  /// How many of them the data of `rank` last: fewer than all only where `inject` cuts them short.
  int own_steps(int rank) const;
};

}  // namespace shardbench::train
