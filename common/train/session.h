#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/optim/exact_sum.h"
#include "common/optim/optimizer.h"
#include "common/train/strategy.h"

namespace shardbench::train {

struct SessionOptions {
  StrategyOptions strategy = {};   ///< units, prefetch, resharding, buckets
  OptimizerConfig optimizer = {};  ///< AdamW unless said otherwise
  /// Needed where fp16 computes (strategy.compute_dtype), possible where gradients travel in it.
  std::optional<LossScale> loss_scale = {};
  double max_norm = 0;     ///< gradients are scaled down to this norm; 0: no clipping
  std::uint64_t seed = 1;  ///< of drawn initial weights; the same on every rank
  /// Called whenever the run enters a unit; may be empty. See Job::set_position.
  std::function<void(Phase, std::string_view unit)> on_position = {};
};

/// What one optimizer step did, the same on every rank.
struct StepResult {
  double loss = 0;  ///< mean over micro-batches and ranks, before the step
  /// Of the averaged gradients, before clipping; 0 without max_norm, NaN in a skipped step.
  double gradient_norm = 0;
  double loss_scale = 1;  ///< that this step had
  bool skipped = false;   ///< a gradient overflowed on some rank: no weight has changed
};

/// The step loop of one rank for programs that use the library: a strategy attached to a model, an
/// optimizer over what this rank owns, and the calls between them in the right order.
///
///     train::Session session(*model, registry.find("fsdp").make(), *ranks);
///     for (...) session.step([&](int micro_batch) { return (*model)(tokens, targets); });
///
/// Every rank makes one and calls the same methods in the same order. A rank brings its own data.
class Session {
 public:
  /// Attaches: every parameter gets its initial value. Model and communicator are not owned and
  /// outlive the session. Throws UserError for options that make no sense.
  Session(Model& model, std::unique_ptr<Strategy> strategy, comm::Communicator& ranks,
          SessionOptions options = {});
  /// Detaches the model; its parameters have no values afterwards.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs forward of micro-batch `index` (from 0) and returns its mean loss, one element.
  using Loss = std::function<at::Tensor(int index)>;

  /// One optimizer step over `micro_batches` graphs on every rank; gradients are their mean. Layers
  /// are in training mode, with dropout masks of their own for every step, micro-batch and rank
  /// (from options.seed; a Loss may set ops::forward_context() itself). A micro-batch whose loss
  /// has no graph must be so on all ranks.
  StepResult step(const Loss& loss, int micro_batches = 1);
  /// Mean loss over `batches` on every rank without gradients and with layers in evaluation mode;
  /// ranks take rank 0's buffers first.
  double evaluate(const Loss& loss, int batches = 1);

  /// Steps done so far.
  std::int64_t steps() const { return steps_; }
  /// The rate of the steps to come (reached after the warm-up, if there is one).
  void set_lr(double lr) { options_.optimizer.lr = lr; }
  Strategy& strategy() { return *strategy_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  double mean_over_ranks(double value);

  Model& model_;
  std::unique_ptr<Strategy> strategy_;
  comm::Communicator& ranks_;
  SessionOptions options_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  LossScaler scaler_;
  std::int64_t steps_ = 0;
};

/// Whether some gradient on any rank is infinite or NaN, the same answer on every rank. Collective
/// after finish_gradients.
bool gradients_overflow(const Strategy& strategy, comm::Communicator& ranks);

/// Norm of all averaged gradients, the same bits on every rank and under every strategy. Collective
/// after finish_gradients.
double gradient_norm(const Strategy& strategy, comm::Communicator& ranks);
/// The same from squares that this rank has added up already.
double norm_over_ranks(optim::ExactSum squares, const Strategy& strategy,
                       comm::Communicator& ranks);

}  // namespace shardbench::train
