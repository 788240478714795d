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

double value_of(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    throw UserError("the loss of a micro-batch must be one number, its mean");
  }
  return loss.item<double>();
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
    : model_(model), strategy_(std::move(strategy)), ranks_(ranks), options_(std::move(options)) {
  if (strategy_ == nullptr) throw UserError("a session needs a strategy");
  validate(options_.optimizer);
  validate(options_.strategy);
  if (!(options_.max_norm >= 0)) throw UserError("max_norm must be 0 (off) or more");
  if (!model_.units().empty()) {
    throw UserError::format("model {} is in another session", model_.name());
  }
  try {
    strategy_->attach({&model_, &ranks_, options_.strategy, options_.seed, options_.on_position});
    optimizer_ = optim::make_optimizer(options_.optimizer, strategy_->owned());
  } catch (...) {
    model_.detach();
    throw;
  }
}

Session::~Session() { model_.detach(); }

StepResult Session::step(const Loss& loss, int micro_batches) {
  if (micro_batches < 1) throw UserError("a step needs at least one micro-batch");
  StepResult result;
  strategy_->begin_step();
  for (int index = 0; index < micro_batches; ++index) {
    strategy_->begin_micro_batch(index, micro_batches);
    const auto stream = static_cast<std::int64_t>(index) * ranks_.world_size() + ranks_.rank();
    ops::forward_context() = {options_.seed, steps_, stream * kSamplesApart, /*training=*/true};
    const at::Tensor mean = loss(index);
    result.loss += value_of(mean) / micro_batches;
    if (mean.requires_grad()) mean.backward(at::full_like(mean, 1.0 / micro_batches));
  }
  strategy_->finish_gradients();
  result.loss = mean_over_ranks(result.loss);
  float scale = 1.0f;
  if (options_.max_norm > 0) {
    result.gradient_norm = gradient_norm(*strategy_, ranks_);
    scale = optim::clip_coefficient(result.gradient_norm, options_.max_norm);
  }
  optimizer_->set_lr(learning_rate(options_.optimizer, steps_++));
  optimizer_->step(strategy_->owned(), strategy_->used(), scale);
  strategy_->after_optimizer();
  ranks_.quiesce();
  return result;
}

double Session::evaluate(const Loss& loss, int batches) {
  if (batches < 1) throw UserError("an evaluation needs at least one batch");
  share_buffers(model_, ranks_, Phase::kMetrics);
  const at::NoGradGuard no_grad;
  const EvaluationMode mode;
  double sum = 0;
  for (int index = 0; index < batches; ++index) sum += value_of(loss(index));
  return mean_over_ranks(sum / batches);
}

double Session::mean_over_ranks(double value) {
  ranks_
      .all_reduce({&value, 1, DType::kFloat64}, comm::ReduceOp::kAverage, {"loss", Phase::kMetrics})
      .wait_released();
  return value;
}

double gradient_norm(const Strategy& strategy, comm::Communicator& ranks) {
  optim::ExactSum sum;
  optim::add_squares(strategy.owned(), strategy.used(), sum);
  if (!strategy.replicated()) {
    ranks
        .all_reduce({sum.limbs(), optim::ExactSum::kLimbs, DType::kInt64}, comm::ReduceOp::kSum,
                    {"gradient norm", Phase::kMetrics})
        .wait_released();
  }
  return std::sqrt(sum.value());
}

}  // namespace shardbench::train
