// An adapted module must train to the bits of the same module under plain autograd in one process.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/train/session.h"
#include "common/train/single.h"
#include "tests/support/strategy_case.h"
#include "tests/torch_nn/net.h"

namespace shardbench::testing {
namespace {

constexpr int kSteps = 3;

struct Job {
  std::string units = "block";
  int micro_batches = 2;
  bool extra_on_odd_ranks = true;
  train::StrategyOptions options;
};

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& text) {
  return at::cross_entropy_loss(logits.flatten(0, 1), text.add(1).remainder(9).flatten());
}
at::Tensor text_of(int step, int micro, int rank) {
  return at::arange(8, at::kLong).mul(step + 1).add(3 * micro + 5 * rank).remainder(9).view({2, 4});
}

std::vector<std::string> unit_paths() { return {"first", "second"}; }

/// Gradients of plain autograd, added up as `order` says, stepped by the project's optimizer.
class Plain {
 public:
  Plain(const Job& job, int world_size, train::AccumulationOrder order)
      : job_(job), world_size_(world_size), order_(order), net_(make_net()), twin_(make_net()) {
    train::Registry registry;
    train::register_single(registry);
    model_ = torch_nn::adapt(twin_);  // lends its memory to the optimizer, never runs
    comm_ = comm::make_local();
    strategy_ = registry.find("single").make();
    strategy_->attach({model_.get(), comm_.get(), {}, 1, {}});
    optimizer_ = optim::make_optimizer({}, strategy_->owned());
  }
  ~Plain() { model_->detach(); }

  void step(int index) {
    const auto parameters = net_->named_parameters();
    std::vector<at::Tensor> total(model_->parameters().size());
    const int k = job_.micro_batches;
    if (order_ == train::AccumulationOrder::kMicroBatchesFirst) {
      total = average(index, 0, k);
    } else {
      for (int micro = 0; micro < k; ++micro) {
        const std::vector<at::Tensor> one = average(index, micro, micro + 1);
        for (std::size_t p = 0; p < one.size(); ++p) {
          if (one[p].defined()) total[p] = total[p].defined() ? total[p] + one[p] : one[p];
        }
      }
    }
    std::vector<char> used(total.size(), 0);
    for (const OwnedPiece& piece : strategy_->owned().pieces) {
      const at::Tensor& gradient = total[static_cast<std::size_t>(piece.parameter->index())];
      if (!gradient.defined()) continue;
      used[static_cast<std::size_t>(piece.parameter->index())] = 1;
      const at::Tensor flat = gradient.contiguous();
      std::memcpy(piece.gradient, flat.const_data_ptr<float>(),
                  static_cast<std::size_t>(piece.count) * sizeof(float));
    }
    optimizer_->step(strategy_->owned(), used, 1.0f);
    for (const OwnedPiece& piece : strategy_->owned().pieces) {
      const at::Tensor* target = parameters.find(piece.parameter->name());
      std::memcpy(target->data_ptr<float>(), piece.value,
                  static_cast<std::size_t>(piece.count) * sizeof(float));
    }
  }

  at::Tensor value(const std::string& name) { return net_->named_parameters()[name]; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  std::vector<at::Tensor> average(int step, int begin, int end) {
    const auto parameters = net_->named_parameters();
    std::vector<at::Tensor> sum(model_->parameters().size());
    for (int rank = 0; rank < world_size_; ++rank) {
      for (const auto& item : parameters) item->mutable_grad().reset();
      net_->with_extra = job_.extra_on_odd_ranks && rank % 2 == 1;
      for (int micro = begin; micro < end; ++micro) {
        const at::Tensor text = text_of(step, micro, rank);
        const at::Tensor loss = loss_of(net_(text), text);
        loss.backward(at::full_like(loss, 1.0 / job_.micro_batches));
      }
      for (const auto& item : parameters) {
        at::Tensor& total = sum[static_cast<std::size_t>(model_->parameter(item.key()).index())];
        const at::Tensor& own = item->grad();
        if (own.defined()) total = total.defined() ? total + own : own.clone();
      }
    }
    for (at::Tensor& total : sum) {
      if (total.defined()) total.mul_(1.0f / static_cast<float>(world_size_));
    }
    return sum;
  }

  const Job& job_;
  int world_size_;
  train::AccumulationOrder order_;
  Net net_;
  Net twin_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<train::Strategy> strategy_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

void check_bits(const float* own, const at::Tensor& expected, const OwnedPiece& piece) {
  const float* reference = expected.const_data_ptr<float>() + piece.begin;
  for (std::int64_t i = 0; i < piece.count; ++i) {
    SHARDBENCH_CHECK(std::memcmp(own + i, reference + i, sizeof(float)) == 0,
                     "{} differs at element {}: {} against {}", piece.parameter->name(),
                     piece.begin + i, own[i], reference[i]);
  }
}

std::string train_rank(const Job& job, const train::StrategyEntry& entry,
                       comm::Communicator& ranks) {
  at::set_num_threads(1);
  Net net = make_net();
  const auto model = torch_nn::adapt(net, {.units = unit_paths()});
  train::SessionOptions options;
  options.strategy = job.options;
  options.strategy.units = sharding::UnitPolicy::parse(job.units);
  train::Session session(*model, entry.make(), ranks, options);
  net->with_extra = job.extra_on_odd_ranks && ranks.rank() % 2 == 1;
  Plain plain(job, ranks.world_size(), entry.order);
  for (int step = 0; step < kSteps; ++step) {
    session.step(
        [&](int micro) {
          const at::Tensor text = text_of(step, micro, ranks.rank());
          return loss_of((*model)(text), text);
        },
        job.micro_batches);
    plain.step(step);
    for (const OwnedPiece& piece : session.strategy().owned().pieces) {
      check_bits(piece.value, plain.value(piece.parameter->name()), piece);
    }
    for (const auto& item : net->named_parameters()) {
      SHARDBENCH_CHECK(!item->grad().defined(), "{} keeps a gradient", item.key());
    }
  }
  torch_nn::give_back(*model);
  for (const auto& item : net->named_parameters()) {
    SHARDBENCH_CHECK(item->equal(plain.value(item.key())), "{} is not given back", item.key());
  }
  return "done";
}

void expect_equal(const Job& job, const std::string& strategy, int world_size) {
  const train::Registry registry = all_strategies();
  const train::StrategyEntry& entry = registry.find(strategy);
  const auto shared = comm::Job::create(
      {.world_size = world_size, .timeout = std::chrono::seconds(60), .guard_peers = true});
  const auto outcome = comm::run_forked(
      shared, [&](int rank) { return train_rank(job, entry, *comm::make_shm(shared, rank)); });
  EXPECT_TRUE(outcome.ok) << strategy << " W=" << world_size << " units " << job.units << ": "
                          << (outcome.failure ? outcome.failure->message : "no result");
}

TEST(TorchNnParity, EveryStrategyEqualsPlainAutograd) {
  for (const std::string& name : strategy_names()) {
    for (int world_size : {1, 2, 3}) expect_equal({}, name, world_size);
  }
}

TEST(TorchNnParity, WholeTensorAndKeptUnits) {
  Job job;
  job.extra_on_odd_ranks = false;  // with one unit per tensor the ranks' calls would differ
  for (const char* units : {"whole", "tensor"}) {
    job.units = units;
    for (const char* strategy : {"ddp", "zero3", "fsdp"}) expect_equal(job, strategy, 2);
  }
  job.extra_on_odd_ranks = true;
  job.units = "block";
  job.options.reshard_after_forward = train::Reshard::kFalse;
  expect_equal(job, "fsdp", 2);
  job.micro_batches = 1;
  job.options.forward_prefetch = job.options.backward_prefetch = 0;
  expect_equal(job, "fsdp", 3);
}

}  // namespace
}  // namespace shardbench::testing
