#include "tests/support/strategy_case.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>

#include "common/comm/job.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/modules/flat_memory.h"
#include "common/optim/norm.h"
#include "common/optim/optimizer.h"
#include "common/train/conversion.h"
#include "common/train/single.h"
#include "ddp/strategy.h"
#include "fsdp/strategy.h"
#include "tests/support/guarded_device.h"
#include "zero3/strategy.h"

namespace shardbench::testing {

namespace {

/// Values and moments of a training run by parameter, and its gradient norms.
struct Trained {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> first_moments;
  std::vector<at::Tensor> second_moments;
  std::vector<double> norms;
};

/// For a model on the guarded device: over its memory.
std::unique_ptr<comm::Communicator> placed(std::unique_ptr<comm::Communicator> ranks,
                                           const Model& model) {
  return model.device().is_cpu() ? std::move(ranks) : over_guarded_device(std::move(ranks));
}

/// One process that adds ranks up in order: what the strategy must equal bit for bit.
class Reference {
 public:
  Reference(const StrategyCase& test, int world_size, bool micro_batches_first)
      : test_(test),
        world_size_(world_size),
        micro_batches_first_(micro_batches_first),
        model_(test.build()),
        comm_(placed(comm::make_local(), *model_)),
        strategy_(micro_batches_first ? train::AccumulationOrder::kMicroBatchesFirst
                                      : train::AccumulationOrder::kRanksFirst) {
    train::StrategyOptions options;
    options.compute_dtype = test.options.compute_dtype;
    options.reduce_dtype = test.options.reduce_dtype;
    options.units = sharding::UnitPolicy::parse("whole");
    strategy_.attach({model_.get(), comm_.get(), options, 7, {}});
    optimizer_ = optim::make_optimizer(test.optimizer, strategy_.owned());
  }

  Trained train() {
    Trained result;
    for (int step = 0; step < test_.steps; ++step) {
      std::vector<char> used(model_->parameters().size(), 0);
      at::Tensor total;
      if (micro_batches_first_) {
        total = average(step, 0, test_.accumulation, used);
      } else {
        for (int micro = 0; micro < test_.accumulation; ++micro) {
          const at::Tensor one = average(step, micro, micro + 1, used);
          total = micro == 0 ? one : total.add_(one);
        }
      }
      gradients().copy_(total);
      optim::ExactSum sum;
      optim::add_squares(strategy_.owned(), used, sum);
      result.norms.push_back(std::sqrt(sum.value()));
      optimizer_->step(strategy_.owned(), used,
                       optim::clip_coefficient(result.norms.back(), test_.max_norm));
      strategy_.after_optimizer();
    }
    const std::size_t parameters = model_->parameters().size();
    result.values.resize(parameters);
    result.first_moments.resize(parameters);
    result.second_moments.resize(parameters);
    const auto copy = [this](const float* data, std::int64_t count) {
      const flat::HostCopy host(data, count, model_->device());
      return at::from_blob(const_cast<float*>(host.data()), {count}, at::kFloat).clone();
    };
    for (const OwnedPiece& piece : strategy_.owned().pieces) {
      const int p = piece.parameter->index();
      result.values[p] = copy(piece.value, piece.count);
      result.first_moments[p] = copy(optimizer_->first_moment(piece), piece.count);
      if (const float* v = optimizer_->second_moment(piece)) {
        result.second_moments[p] = copy(v, piece.count);
      }
    }
    model_->detach();
    return result;
  }

 private:
  at::Tensor gradients() {
    const comm::Buffer memory = strategy_.gradient_memory();
    return flat::view(memory.data, {memory.count}, DType::kFloat32, model_->device());
  }

  at::Tensor average(int step, int begin, int end, std::vector<char>& used) {
    at::Tensor sum;
    for (int rank = 0; rank < world_size_; ++rank) {
      strategy_.begin_step();
      for (int micro = begin; micro < end; ++micro) {
        strategy_.begin_micro_batch(micro, test_.accumulation);
        for (const at::Tensor& loss : test_.forward(*model_, step, micro, rank)) {
          loss.backward(at::full_like(loss, 1.0 / test_.accumulation));
        }
      }
      strategy_.finish_gradients();
      for (std::size_t p = 0; p < used.size(); ++p) used[p] = used[p] || strategy_.used()[p];
      sum = rank == 0 ? gradients().clone() : sum.add_(gradients());
    }
    sum.mul_(1.0f / static_cast<float>(world_size_));
    train::round_as(test_.options.reduce_dtype, sum);
    return sum;
  }

  const StrategyCase& test_;
  int world_size_;
  bool micro_batches_first_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<comm::Communicator> comm_;
  train::Single strategy_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

void expect_bits(const float* data, const at::Tensor& expected, const OwnedPiece& piece,
                 const char* what) {
  const flat::HostCopy host(data, piece.count, piece.parameter->device());
  const float* own = host.data();
  const float* reference = expected.const_data_ptr<float>() + piece.begin;
  if (std::memcmp(own, reference, static_cast<std::size_t>(piece.count) * sizeof(float)) == 0) {
    return;
  }
  for (std::int64_t i = 0; i < piece.count; ++i) {
    if (std::memcmp(own + i, reference + i, sizeof(float)) != 0) {
      throw InvariantError(fmt::format("{} of {} differs at element {}: {} against {}", what,
                                       piece.parameter->name(), piece.begin + i, own[i],
                                       reference[i]));
    }
  }
}

/// One rank's run of the strategy; checks everything it owns against the reference.
void run_rank(const StrategyCase& test, const train::StrategyEntry& entry,
              const std::shared_ptr<comm::Job>& job, int rank) {
  at::set_num_threads(1);
  memory::install_allocator();
  memory::poison_freed(test.poison_memory);
  const int world_size = job->world_size();
  const bool shared = world_size > 1;
  const std::unique_ptr<Model> model = test.build();
  auto comm = comm::record(placed(shared ? comm::make_shm(job, rank) : comm::make_local(), *model),
                           shared ? comm::wire_matrix(job) : comm::local_wire_matrix());
  const std::unique_ptr<train::Strategy> strategy = entry.make();
  train::StrategyOptions options = test.options;
  options.units = sharding::UnitPolicy::parse(test.units);
  strategy->attach({model.get(), comm.get(), options, 7, {}});
  const auto optimizer = optim::make_optimizer(test.optimizer, strategy->owned());
  const bool micro_batches_first = entry.order == train::AccumulationOrder::kMicroBatchesFirst;

  std::vector<double> norms;
  for (int step = 0; step < test.steps; ++step) {
    comm->barrier({"reset", Phase::kMetrics}).wait();
    comm->reset();
    comm->barrier({"step", Phase::kMetrics}).wait();
    strategy->begin_step();
    for (int micro = 0; micro < test.accumulation; ++micro) {
      strategy->begin_micro_batch(micro, test.accumulation);
      for (const at::Tensor& loss : test.forward(*model, step, micro, rank)) {
        loss.backward(at::full_like(loss, 1.0 / test.accumulation));
      }
    }
    strategy->finish_gradients();
    const std::vector<char>& used = strategy->used();
    optim::ExactSum sum;
    optim::add_squares(strategy->owned(), used, sum);
    if (!strategy->replicated()) {
      comm->all_reduce({sum.limbs(), optim::ExactSum::kLimbs, DType::kInt64}, comm::ReduceOp::kSum,
                       {"norm", Phase::kMetrics})
          .wait();
    }
    norms.push_back(std::sqrt(sum.value()));
    optimizer->step(strategy->owned(), used, optim::clip_coefficient(norms.back(), test.max_norm));
    strategy->after_optimizer();
    comm->quiesce();
    comm->barrier({"end", Phase::kMetrics}).wait();
    if (test.after_step) test.after_step({*model, *strategy, *comm, step, norms.back()});
  }

  const Trained expected = Reference(test, world_size, micro_batches_first).train();
  for (int step = 0; step < test.steps; ++step) {
    if (norms[step] != expected.norms[step]) {
      throw InvariantError(fmt::format("gradient norm of step {} is {}, the reference has {}",
                                       step + 1, norms[step], expected.norms[step]));
    }
  }
  for (const OwnedPiece& piece : strategy->owned().pieces) {
    const int p = piece.parameter->index();
    expect_bits(piece.value, expected.values[p], piece, "value");
    expect_bits(optimizer->first_moment(piece), expected.first_moments[p], piece, "first moment");
    if (const float* v = optimizer->second_moment(piece)) {
      expect_bits(v, expected.second_moments[p], piece, "second moment");
    }
  }
  model->detach();
}

}  // namespace

train::Registry all_strategies() {
  train::Registry registry;
  ddp::register_strategy(registry);
  zero3::register_zero1(registry);
  zero3::register_zero2(registry);
  zero3::register_strategy(registry);
  fsdp::register_strategy(registry);
  return registry;
}

std::vector<std::string> strategy_names() { return {"ddp", "zero1", "zero2", "zero3", "fsdp"}; }

std::string run_case(const StrategyCase& test, const std::string& strategy, int world_size) {
  const train::Registry registry = all_strategies();
  const train::StrategyEntry& entry = registry.find(strategy);
  comm::Job::Options options;
  options.world_size = world_size;
  options.timeout = std::chrono::seconds(60);
  options.guard_peers = true;  // nothing may move around the counters
  const auto job = comm::Job::create(options);
  const comm::JobOutcome outcome = comm::run_forked(job, [&](int rank) {
    run_rank(test, entry, job, rank);
    return std::string("done");
  });
  if (outcome.ok) return {};
  return fmt::format("{} W={}: {}", strategy, world_size,
                     outcome.failure ? outcome.failure->message : "no result");
}

at::Tensor fixed(at::IntArrayRef sizes, int a, int b, int c) {
  const at::Tensor result = at::empty(sizes, at::kFloat);
  auto* data = result.data_ptr<float>();
  std::uint32_t state = 0x9E3779B9u * static_cast<std::uint32_t>(a + 1) +
                        0x85EBCA6Bu * static_cast<std::uint32_t>(b + 1) +
                        0xC2B2AE35u * static_cast<std::uint32_t>(c + 1);
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return result;
}

}  // namespace shardbench::testing
