#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "common/comm/local/local.h"
#include "common/models/build.h"
#include "common/modules/flat_memory.h"
#include "common/optim/norm.h"
#include "common/train/accelerator.h"
#include "common/train/conversion.h"
#include "common/train/digest.h"
#include "common/train/rank_run.h"
#include "common/train/single.h"
#include "common/train/trainer.h"

namespace shardbench::train {

namespace {

// Of the whole gradient's norm, about the rounding of fp32: what tensors that are zero but for
// rounding (key biases, norms of width 2) may differ by.
constexpr double kGradientFloor = 1e-7;

/// Where references compute, and a communicator of one rank whose memory is there.
struct Place {
  std::unique_ptr<comm::Communicator> comm;
  at::Device device = at::kCPU;
};

Place place_of(const RunConfig& config, const comm::Seat& seat) {
  if (config.device == DeviceKind::kCpu) return {comm::make_local(), at::kCPU};
  comm::Transport transport = seat.connect();
  return {std::move(transport.ranks), device_of(transport.device)};
}

/// One process that holds the whole model: what both references train.
class Whole {
 public:
  Whole(const RunConfig& config, AccumulationOrder order, const Place& place)
      : model_(models::build(config.model)), strategy_(order) {
    model_->set_device(place.device);
    StrategyOptions options = config.options;
    options.units = {sharding::UnitPolicy::Kind::kWhole, 0, ""};
    options.sparse_embedding = false;  // whole gradients: what rows must add up to
    strategy_.attach({model_.get(), place.comm.get(), options, config.seed, {}});
    optimizer_ = optim::make_optimizer(config.optimizer, strategy_.owned());
  }

  Model& model() { return *model_; }
  Single& strategy() { return strategy_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

  /// All gradients as one flat tensor over the strategy's memory.
  at::Tensor gradients() {
    const comm::Buffer memory = strategy_.gradient_memory();
    return flat::view(memory.data, {memory.count}, DType::kFloat32, model_->device());
  }

  std::vector<at::Tensor> copy_of_buffers() const {
    std::vector<at::Tensor> copies;
    for (const ModuleBuffer* buffer : model_->buffers()) copies.push_back(buffer->tensor.clone());
    return copies;
  }
  void restore_buffers(const std::vector<at::Tensor>& copies) {
    for (std::size_t i = 0; i < copies.size(); ++i) model_->buffers()[i]->tensor.copy_(copies[i]);
  }

  /// Forward and backward of one micro-batch on top of what is there; returns the loss.
  double micro_batch(const Batch& batch, double scale) {
    const at::Tensor loss = (*model_)(batch.tokens, batch.targets);
    const double value = loss.item<float>();
    loss.backward(at::full_like(loss, scale));
    return value;
  }

  void note_used(std::vector<char>& used) const {
    for (std::size_t p = 0; p < used.size(); ++p) used[p] = used[p] || strategy_.used()[p];
  }

  double norm(const std::vector<char>& used) const {
    optim::ExactSum sum;
    optim::add_squares(strategy_.owned(), used, sum);
    return std::sqrt(sum.value());
  }

  void optimize(double lr, const std::vector<char>& used, float gradient_scale) {
    optimizer_->set_lr(lr);
    optimizer_->step(strategy_.owned(), used, gradient_scale);
    strategy_.after_optimizer();
  }

 private:
  std::unique_ptr<Model> model_;
  Single strategy_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// Reference A: each rank's micro-batches by themselves, added up in the order in which the
/// strategies add them, so that the bits must agree.
class ReferenceA {
 public:
  ReferenceA(const RunConfig& config, AccumulationOrder order, const Feed& feed, const Place& place)
      : config_(config),
        order_(order),
        feed_(feed),
        whole_(config, order, place),
        scaler_(config.loss_scale) {}

  StepRecord step(std::int64_t index, ReferenceResult& result, at::Tensor& first_gradient) {
    StepRecord record;
    record.loss_scale = scaler_.value();
    std::vector<char> used(whole_.model().parameters().size(), 0);
    at::Tensor total;
    std::vector<double> losses(config_.world_size, 0.0);
    if (order_ == AccumulationOrder::kMicroBatchesFirst) {
      total = sum_over_ranks(index, 0, config_.accumulation, used, losses);
    } else {
      for (int micro = 0; micro < config_.accumulation; ++micro) {
        const at::Tensor average = sum_over_ranks(index, micro, micro + 1, used, losses);
        if (micro == 0) {
          total = average;
        } else {
          total.add_(average);
        }
      }
    }
    whole_.gradients().copy_(total);
    double loss = losses[0];
    for (int rank = 1; rank < config_.world_size; ++rank) loss += losses[rank];
    record.loss = loss * (1.0 / config_.world_size);
    record.skipped = scaler_.active() && !optim::all_finite(whole_.strategy().owned(), used);
    if (!first_gradient.defined() && !record.skipped) {
      first_gradient = total.clone();
      for (const OwnedPiece& piece : whole_.strategy().owned().pieces) {
        const flat::HostCopy values(piece.gradient, piece.count, piece.parameter->device());
        result.digests[piece.parameter->index()].first_gradient =
            digest(values.data(), 0, piece.count);
      }
    }
    record.gradient_norm = whole_.norm(used) / record.loss_scale;
    if (!record.skipped) {
      whole_.optimize(
          learning_rate(config_.optimizer, index), used,
          optim::gradient_scale(record.gradient_norm, config_.max_norm, record.loss_scale));
    }
    scaler_.note_step(record.skipped);
    return record;
  }

  double evaluate(std::int64_t max_windows) {
    at::NoGradGuard no_grad;
    const data::EvaluationPlan plan = feed_.evaluation_plan(max_windows);
    double sum = 0;
    double all_rows = 0;
    for (int rank = 0; rank < config_.world_size; ++rank) {
      double rank_sum = 0;
      for (std::int64_t round = 0; round < plan.rounds(); ++round) {
        std::int64_t rows = 0;
        const Batch batch = feed_.held_out(plan, round, rank, &rows);
        rank_sum +=
            static_cast<double>(rows) * whole_.model()(batch.tokens, batch.targets).item<float>();
        all_rows += static_cast<double>(rows);
      }
      sum = rank == 0 ? rank_sum : sum + rank_sum;
    }
    return sum / all_rows;
  }

  Whole& whole() { return whole_; }

 private:
  /// Average over ranks of the gradients of micro-batches [begin, end): rank 0's first, then by
  /// rank, then one multiplication. Adds each rank's loss share.
  at::Tensor sum_over_ranks(std::int64_t index, int begin, int end, std::vector<char>& used,
                            std::vector<double>& losses) {
    at::Tensor sum;
    for (int rank = 0; rank < config_.world_size; ++rank) {
      // Rank 0's buffers count; what the other ranks' forwards do to theirs is lost.
      const std::vector<at::Tensor> buffers =
          rank == 0 ? std::vector<at::Tensor>() : whole_.copy_of_buffers();
      whole_.strategy().begin_step();
      for (int micro = begin; micro < end; ++micro) {
        whole_.strategy().begin_micro_batch(micro, config_.accumulation);
        losses[rank] += whole_.micro_batch(feed_.training(index, micro, rank),
                                           scaler_.value() / config_.accumulation) /
                        config_.accumulation;
      }
      whole_.strategy().finish_gradients();
      whole_.restore_buffers(buffers);
      whole_.note_used(used);
      if (rank == 0) {
        sum = whole_.gradients().clone();
      } else {
        sum.add_(whole_.gradients());
      }
    }
    sum.mul_(1.0f / static_cast<float>(config_.world_size));
    round_as(config_.options.reduce_dtype, sum);
    return sum;
  }

  RunConfig config_;
  AccumulationOrder order_;
  const Feed& feed_;
  Whole whole_;
  LossScaler scaler_;
};

/// Ranks stop where the shortest one's data end.
int steps_of_all(const RunConfig& config) {
  int steps = config.all_steps();
  for (int rank = 0; rank < config.world_size; ++rank) {
    steps = std::min(steps, config.own_steps(rank));
  }
  return steps;
}

/// Compares the step-1 gradients of A and B tensor by tensor.
void compare_gradients(Whole& whole, const at::Tensor& a, const at::Tensor& b, const float* base,
                       ReferenceResult& result) {
  const double all = a.to(at::kDouble).norm().item<double>();
  result.norm_rel_diff = all == 0 ? 0 : std::abs(b.to(at::kDouble).norm().item<double>() / all - 1);
  result.gradients_close = result.norm_rel_diff <= kNormBound;
  for (const OwnedPiece& piece : whole.strategy().owned().pieces) {
    const std::int64_t offset = piece.gradient - base;
    const at::Tensor x = a.narrow(0, offset, piece.count).to(at::kDouble);
    const at::Tensor y = b.narrow(0, offset, piece.count).to(at::kDouble);
    const double difference = (x - y).norm().item<double>();
    // Relative to the tensor, but not below the floor: those that are zero but for rounding.
    const double scale = std::max(x.norm().item<double>(), kGradientFloor / kGradientBound * all);
    double relative = difference == 0 ? 0 : difference / scale;
    if (std::isnan(relative)) relative = std::numeric_limits<double>::infinity();
    if (relative > result.gradient_max_rel_diff) {
      result.gradient_max_rel_diff = relative;
      result.gradient_worst_tensor = piece.parameter->name();
    }
  }
  result.gradients_close = result.gradients_close && result.gradient_max_rel_diff <= kGradientBound;
}

double relative_distance(Whole& a, Whole& b) {
  double difference = 0;
  double norm = 0;
  const auto& pieces_a = a.strategy().owned().pieces;
  const auto& pieces_b = b.strategy().owned().pieces;
  for (std::size_t i = 0; i < pieces_a.size(); ++i) {
    const std::int64_t count = pieces_a[i].count;
    const flat::HostCopy values_a(pieces_a[i].value, count, a.model().device());
    const flat::HostCopy values_b(pieces_b[i].value, count, b.model().device());
    for (std::int64_t j = 0; j < count; ++j) {
      const double x = values_a.data()[j];
      const double d = x - values_b.data()[j];
      difference += d * d;
      norm += x * x;
    }
  }
  return norm == 0 ? 0 : std::sqrt(difference / norm);
}

/// Reference B: the whole batch at once. Its step-1 gradients are compared with A's, and its
/// parameters after the last step; takes `first_gradient` over.
void run_reference_b(const RunConfig& config, const Feed& feed, Whole& a, at::Tensor first_gradient,
                     const Place& place, comm::Job& job, ReferenceResult& result) {
  // Reference B is compared within bounds, not bit by bit, so it may use all cores.
  at::set_num_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Whole b(config, AccumulationOrder::kMicroBatchesFirst, place);
  const std::size_t parameters = a.model().parameters().size();
  std::vector<char> used(parameters, 0);
  const int steps = steps_of_all(config);
  for (std::int64_t step = 0; step < steps; ++step) {
    b.strategy().begin_step();
    b.strategy().begin_micro_batch(0, 1);
    b.micro_batch(feed.global(step), 1.0);
    b.strategy().finish_gradients();
    used.assign(parameters, 0);
    b.note_used(used);
    if (step == 0) {
      compare_gradients(b, first_gradient, b.gradients(),
                        static_cast<const float*>(b.strategy().gradient_memory().data), result);
      first_gradient.reset();
    }
    b.optimize(learning_rate(config.optimizer, step), used,
               optim::clip_coefficient(b.norm(used), config.max_norm));
    job.set_progress(0, steps + step + 1);
  }
  result.parameter_rel_distance = relative_distance(a, b);
}

}  // namespace

ReferenceResult run_references(const RunConfig& config, AccumulationOrder order,
                               const comm::Seat& seat) {
  comm::Job& job = *seat.job;
  const Place place = place_of(config, seat);
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const Feed feed(config, *source, place.device);
  ReferenceResult result;
  ReferenceA a(config, order, feed, place);
  const std::vector<Parameter*>& parameters = a.whole().model().parameters();
  result.digests.resize(parameters.size());
  for (const Parameter* p : parameters) result.parameter_names.push_back(p->name());

  const int steps = steps_of_all(config);
  at::Tensor first_gradient;
  for (std::int64_t step = 0; step < steps; ++step) {
    result.steps.push_back(a.step(step, result, first_gradient));
    if (step == 0) result.evaluation_losses.push_back(a.evaluate(config.batch * config.world_size));
    job.set_progress(0, step + 1);
  }
  std::vector<ParameterDigest> digests =
      digest_owned(a.whole().strategy().owned(), a.whole().optimizer(), parameters.size());
  for (std::size_t p = 0; p < digests.size(); ++p) {
    digests[p].first_gradient = result.digests[p].first_gradient;
  }
  result.digests = std::move(digests);

  result.whole_values = digest_whole(a.whole().model());
  result.buffer_digests = digest_buffers(a.whole().model());
  for (const ModuleBuffer* buffer : a.whole().model().buffers()) {
    result.buffer_names.push_back(buffer->name);
  }
  result.whole_batch = result.buffer_names.empty() &&
                       config.options.compute_dtype == DType::kFloat32 &&
                       config.options.reduce_dtype == DType::kFloat32;
  if (result.whole_batch)
    run_reference_b(config, feed, a.whole(), first_gradient, place, job, result);
  return result;
}

}  // namespace shardbench::train
