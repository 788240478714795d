#include "common/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/memory/allocator.h"
#include "common/memory/process_memory.h"
#include "common/memory/tracker.h"
#include "common/modules/flat_memory.h"
#include "common/optim/norm.h"
#include "common/train/digest.h"
#include "common/train/initial_values.h"
#include "common/train/session.h"

namespace shardbench::train {

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Of what `data` holds for the piece, wherever that lies.
std::uint64_t digest_on(const OwnedPiece& piece, const float* data) {
  const flat::HostCopy values(data, piece.count, piece.parameter->device());
  return digest(values.data(), piece.begin, piece.count);
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const Parts& parts)
    : config_(config),
      parts_(parts),
      own_clock_(parts.clock == nullptr ? host_clock() : nullptr),
      optimizer_(optim::make_optimizer(config.optimizer, parts.strategy->owned())),
      scaler_(config.loss_scale),
      ever_used_(parts.model->parameters().size(), 0),
      first_gradients_(parts.model->parameters().size(), 0) {
  if (parts_.clock == nullptr) parts_.clock = own_clock_.get();
  if (!config_.options.optimizer_in_backward) return;
  parts_.strategy->on_final_gradients(
      [this](std::span<const OwnedPiece> pieces, const std::vector<char>& used) {
        take(pieces, used);
      });
}

StepRecord Trainer::step(std::int64_t index) {
  StepRecord record;
  record.loss_scale = scaler_.value();
  fence("step begins");
  parts_.comm->reset();
  fence("counters are zero");
  const std::int64_t faults = memory::minor_faults();
  const std::int64_t allocations = memory::system_allocations();
  Strategy& strategy = *parts_.strategy;
  const bool stepped_in_backward = config_.options.optimizer_in_backward;
  squares_ = {};
  noting_ns_ = taking_ns_ = 0;
  optimizer_->set_lr(learning_rate(config_.optimizer, index));
  strategy.begin_step();
  for (int micro = 0; micro < config_.accumulation; ++micro) {
    strategy.begin_micro_batch(micro, config_.accumulation);
    micro_batch(index, micro, record.loss_scale);
  }
  parts_.clock->enter(Phase::kBackward);
  strategy.finish_gradients();
  parts_.clock->stop();

  position(Phase::kMetrics);
  const std::vector<char>& used = strategy.used();
  for (std::size_t p = 0; p < used.size(); ++p) ever_used_[p] = ever_used_[p] || used[p];
  record.skipped = scaler_.active() && gradients_overflow(strategy, *parts_.comm);
  if (!stepped_in_backward && !digested_ && !record.skipped) {
    digest_gradients(strategy.owned().pieces);
  }
  digested_ = digested_ || !record.skipped;

  parts_.clock->enter(Phase::kOptimizer);
  position(Phase::kOptimizer);
  if (config_.max_norm > 0) record.gradient_norm = unscaled_norm(record.loss_scale);
  if (!record.skipped && !stepped_in_backward) {
    optimizer_->step(
        strategy.owned(), used,
        optim::gradient_scale(record.gradient_norm, config_.max_norm, record.loss_scale));
  }
  strategy.after_optimizer();  // a skipped step sends what others send
  scaler_.note_step(record.skipped);
  parts_.clock->stop();
  record.minor_faults = memory::minor_faults() - faults;
  record.system_allocations = memory::system_allocations() - allocations;

  position(Phase::kMetrics);
  record.loss = mean_over_ranks(read_losses());
  if (config_.max_norm <= 0) record.gradient_norm = unscaled_norm(record.loss_scale);
  parts_.comm->quiesce();
  fence("step ends");
  const StepClock::Times times = parts_.clock->read();
  record.forward_ns = times.forward_ns;
  record.backward_ns = times.backward_ns - noting_ns_ - taking_ns_;
  record.optimizer_ns = times.optimizer_ns + taking_ns_;
  record.step_ns = record.forward_ns + record.backward_ns + record.optimizer_ns;
  for (const comm::CallRecord& call : parts_.comm->calls()) {
    if (call.phase == Phase::kMetrics) continue;
    record.peer_wait_ns += call.peer_wait_ns;
    record.exposed_ns += call.peer_wait_ns + call.move_ns;
  }
  // Where each rank moves its own bytes in its waits, nothing is hidden.
  record.comm_ns =
      std::max(record.exposed_ns, communication_ns(parts_.comm->calls(), config_.link.has_value()));
  return record;
}

void Trainer::micro_batch(std::int64_t index, int micro, double loss_scale) {
  const Batch batch = parts_.feed->training(index, micro, parts_.comm->rank());
  parts_.clock->enter(Phase::kForward);
  const at::Tensor loss = (*parts_.model)(batch.tokens, batch.targets);
  losses_.push_back(loss.detach());
  parts_.clock->enter(Phase::kBackward);
  loss.backward(at::full_like(loss, loss_scale / config_.accumulation));
  parts_.clock->stop();
}

/// Only when the step has been queued: the host waits for a device here.
double Trainer::read_losses() {
  double sum = 0;
  for (const at::Tensor& loss : losses_) {
    const double value = loss.item<float>();
    sum += value / config_.accumulation;
  }
  losses_.clear();
  return sum;
}

void Trainer::share_buffers() {
  position(Phase::kMetrics);
  train::share_buffers(*parts_.model, *parts_.comm, Phase::kMetrics);
}

double Trainer::evaluate(std::int64_t max_windows) {
  share_buffers();
  at::NoGradGuard no_grad;
  const data::EvaluationPlan plan = parts_.feed->evaluation_plan(max_windows);
  double sums[2] = {0, 0};  // loss x rows, rows
  for (std::int64_t round = 0; round < plan.rounds(); ++round) {
    std::int64_t rows = 0;
    const Batch batch = parts_.feed->held_out(plan, round, parts_.comm->rank(), &rows);
    const double loss = (*parts_.model)(batch.tokens, batch.targets).item<float>();
    sums[0] += loss * static_cast<double>(rows);
    sums[1] += static_cast<double>(rows);
  }
  position(Phase::kMetrics);
  parts_.comm
      ->all_reduce({sums, 2, DType::kFloat64}, comm::ReduceOp::kSum,
                   {"evaluation", Phase::kMetrics})
      .wait_released();
  return sums[0] / sums[1];
}

double Trainer::mean_over_ranks(double loss) {
  parts_.comm
      ->all_reduce({&loss, 1, DType::kFloat64}, comm::ReduceOp::kAverage, {"loss", Phase::kMetrics})
      .wait_released();
  return loss;
}

void Trainer::position(Phase phase) {
  memory::tracker().set_position(phase, "");
  if (parts_.on_position) parts_.on_position(phase, "");
}

void Trainer::fence(std::string_view label) {
  parts_.comm->barrier({label, Phase::kMetrics}).wait();
}

double Trainer::unscaled_norm(double loss_scale) const {
  if (config_.options.optimizer_in_backward) {
    return norm_over_ranks(squares_, *parts_.strategy, *parts_.comm);
  }
  return train::gradient_norm(*parts_.strategy, *parts_.comm) / loss_scale;
}

/// Gradients of a unit inside backward: everything that a step does with them.
void Trainer::take(std::span<const OwnedPiece> pieces, const std::vector<char>& used) {
  const std::int64_t start = now_ns();
  optim::add_squares(pieces, used, squares_);
  if (!digested_) digest_gradients(pieces);
  const std::int64_t noted = now_ns();
  optimizer_->step(pieces, used, 1.0f);
  noting_ns_ += noted - start;
  taking_ns_ += now_ns() - noted;
}

void Trainer::digest_gradients(std::span<const OwnedPiece> pieces) {
  for (const OwnedPiece& piece : pieces) {
    first_gradients_[piece.parameter->index()] += digest_on(piece, piece.gradient);
  }
}

std::vector<ParameterDigest> Trainer::digests() const {
  std::vector<ParameterDigest> result =
      digest_owned(parts_.strategy->owned(), *optimizer_, first_gradients_.size());
  for (std::size_t p = 0; p < result.size(); ++p) result[p].first_gradient = first_gradients_[p];
  return result;
}

std::vector<std::uint64_t> digest_whole(const Model& model) {
  std::vector<std::uint64_t> result;
  for (const Parameter* p : model.parameters()) {
    if (!p->bound()) return {};
    if (!p->requires_grad()) {
      result.push_back(0);  // as in the digests of what is owned
      continue;
    }
    const at::Tensor values = p->tensor().to(at::kCPU, at::kFloat);  // as it is, in fp32
    result.push_back(digest(values.const_data_ptr<float>(), 0, p->numel()));
  }
  return result;
}

std::vector<std::uint64_t> digest_buffers(const Model& model) {
  std::vector<std::uint64_t> result;
  for (const ModuleBuffer* buffer : model.buffers()) {
    const at::Tensor values = buffer->tensor.to(at::kCPU);
    result.push_back(digest(values.const_data_ptr<float>(), 0, values.numel()));
  }
  return result;
}

std::vector<ParameterDigest> digest_owned(const Owned& owned, const optim::Optimizer& optimizer,
                                          std::size_t parameters) {
  std::vector<ParameterDigest> result(parameters);
  for (const OwnedPiece& piece : owned.pieces) {
    ParameterDigest& d = result[piece.parameter->index()];
    d.value += digest_on(piece, piece.value);
    if (const float* m = optimizer.first_moment(piece)) d.first_moment += digest_on(piece, m);
    if (const float* v = optimizer.second_moment(piece)) d.second_moment += digest_on(piece, v);
  }
  return result;
}

std::int64_t communication_ns(const std::vector<comm::CallRecord>& calls, bool emulated_link) {
  std::vector<comm::Span> spans;
  for (const comm::CallRecord& call : calls) {
    if (call.phase == Phase::kMetrics) continue;
    if (emulated_link) {
      spans.push_back({call.issued_ns, call.finished_ns});
    } else {
      spans.push_back(call.background);
      spans.insert(spans.end(), call.blocked.begin(), call.blocked.end());
    }
  }
  return comm::covered_ns(std::move(spans));
}

}  // namespace shardbench::train
