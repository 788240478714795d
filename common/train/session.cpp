#include "common/train/session.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

#include "common/core/error.h"
#include "common/ops/forward_context.h"
#include "common/optim/norm.h"
#include "common/train/initial_values.h"

namespace shardbench::train {

namespace {

/// The loss itself, which must be one number.
const at::Tensor& checked(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    throw UserError("the loss of a micro-batch must be one number, its mean");
  }
  return loss;
}

/// Room between the sample numbers of two micro-batches: dropout masks never meet.
constexpr std::int64_t kSamplesApart = std::int64_t{1} << 24;

/// Layers behave as in an evaluation while this lives.
class EvaluationMode {
 public:
  EvaluationMode() { ops::forward_context().training = false; }
  ~EvaluationMode() { ops::forward_context() = before_; }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  ops::ForwardContext before_ = ops::forward_context();
};

}  // namespace

Session::Session(Model& model, std::unique_ptr<Strategy> strategy, comm::Communicator& ranks,
                 SessionOptions options)
    : model_(model),
      strategy_(std::move(strategy)),
      ranks_(ranks),
      options_(std::move(options)),
      scaler_(options_.loss_scale) {
  if (strategy_ == nullptr) throw UserError("a session needs a strategy");
  validate(options_.optimizer);
  validate(options_.strategy);
  validate_loss_scale(options_.strategy, options_.loss_scale);
  validate_step_in_backward(options_.strategy, options_.max_norm, options_.loss_scale.has_value());
  if (options_.strategy.collectives == CollectiveMode::kStaged) {
    throw UserError("collectives staged: give the session a communicator from comm::with_staging");
  }
  if (!(options_.max_norm >= 0)) throw UserError("max_norm must be 0 (off) or more");
  if (!model_.units().empty()) {
    throw UserError::format("model {} is in another session", model_.name());
  }
  try {
    strategy_->attach({&model_, &ranks_, options_.strategy, options_.seed, options_.on_position});
    optimizer_ = optim::make_optimizer(options_.optimizer, strategy_->owned());
    if (options_.strategy.optimizer_in_backward) {
      strategy_->on_final_gradients(
          [this](std::span<const OwnedPiece> pieces, const std::vector<char>& used) {
            optimizer_->step(pieces, used, 1.0f);
          });
    }
  } catch (...) {
    model_.detach();
    throw;
  }
}

Session::~Session() { model_.detach(); }

StepResult Session::step(const Loss& loss, int micro_batches) {
  if (micro_batches < 1) throw UserError("a step needs at least one micro-batch");
  const bool stepped_in_backward = options_.strategy.optimizer_in_backward;
  if (stepped_in_backward && micro_batches > 1) {
    throw UserError::format(
        "optimizer_in_backward steps weights in the first backward: {} micro-batches per step need "
        "gradients that are kept; nearest: 1",
        micro_batches);
  }
  optimizer_->set_lr(learning_rate(options_.optimizer, steps_));
  StepResult result;
  result.loss_scale = scaler_.value();
  strategy_->begin_step();
  std::vector<at::Tensor> losses;
  for (int index = 0; index < micro_batches; ++index) {
    strategy_->begin_micro_batch(index, micro_batches);
    const auto stream = static_cast<std::int64_t>(index) * ranks_.world_size() + ranks_.rank();
    ops::forward_context() = {options_.seed, steps_, stream * kSamplesApart, /*training=*/true};
    const at::Tensor mean = checked(loss(index));
    losses.push_back(mean.detach());
    if (mean.requires_grad()) {
      mean.backward(at::full_like(mean, result.loss_scale / micro_batches));
    }
  }
  strategy_->finish_gradients();
  result.skipped = scaler_.active() && gradients_overflow(*strategy_, ranks_);
  if (options_.max_norm > 0) {
    result.gradient_norm = gradient_norm(*strategy_, ranks_) / result.loss_scale;
  }
  ++steps_;
  if (!result.skipped && !stepped_in_backward) {
    optimizer_->step(
        strategy_->owned(), strategy_->used(),
        optim::gradient_scale(result.gradient_norm, options_.max_norm, result.loss_scale));
  }
  strategy_->after_optimizer();  // a skipped step sends what others send
  scaler_.note_step(result.skipped);
  // Last: a device has been given all of the step by now, and the host waits for it here.
  for (const at::Tensor& mean : losses) result.loss += mean.item<double>() / micro_batches;
  result.loss = mean_over_ranks(result.loss);
  ranks_.quiesce();
  return result;
}

double Session::evaluate(const Loss& loss, int batches) {
  if (batches < 1) throw UserError("an evaluation needs at least one batch");
  share_buffers(model_, ranks_, Phase::kMetrics);
  const at::NoGradGuard no_grad;
  const EvaluationMode mode;
  double sum = 0;
  for (int index = 0; index < batches; ++index) sum += checked(loss(index)).item<double>();
  return mean_over_ranks(sum / batches);
}

double Session::mean_over_ranks(double value) {
  ranks_
      .all_reduce({&value, 1, DType::kFloat64}, comm::ReduceOp::kAverage, {"loss", Phase::kMetrics})
      .wait_released();
  return value;
}

bool gradients_overflow(const Strategy& strategy, comm::Communicator& ranks) {
  std::int64_t overflow = optim::all_finite(strategy.owned(), strategy.used()) ? 0 : 1;
  if (!strategy.replicated()) {
    ranks
        .all_reduce({&overflow, 1, DType::kInt64}, comm::ReduceOp::kMax,
                    {"gradient overflow", Phase::kMetrics})
        .wait_released();
  }
  return overflow != 0;
}

double gradient_norm(const Strategy& strategy, comm::Communicator& ranks) {
  optim::ExactSum squares;
  optim::add_squares(strategy.owned(), strategy.used(), squares);
  return norm_over_ranks(squares, strategy, ranks);
}

double norm_over_ranks(optim::ExactSum squares, const Strategy& strategy,
                       comm::Communicator& ranks) {
  if (!strategy.replicated()) {
    ranks
        .all_reduce({squares.limbs(), optim::ExactSum::kLimbs, DType::kInt64}, comm::ReduceOp::kSum,
                    {"gradient norm", Phase::kMetrics})
        .wait_released();
  }
  return std::sqrt(squares.value());
}

}  // namespace shardbench::train
