// A layer of your own, written in plain ATen calls, trained under any strategy:
//   own_layer [STRATEGY] [RANKS]            (fsdp, 2)
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "shardbench.h"
using namespace shardbench;

/// y = x + gate * tanh(x W). Weights are taken with tracked(): autograd does the rest, and the
/// gradient arrives where the strategy wants it. A class whose name ends in Block is a unit.
class GatedBlock : public Module {
 public:
  explicit GatedBlock(std::int64_t width)
      : weight_(add_parameter("weight", {width, width}, Init::normal(0.3))),
        gate_(add_parameter("gate", {width}, Init::constant(0.5))) {}
  std::string_view class_name() const override { return "GatedBlock"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const at::Tensor& x = inputs[0];
    return x + gate_.tracked() * at::tanh(at::matmul(x, weight_.tracked()));
  }

 private:
  Parameter& weight_;
  Parameter& gate_;
};

/// Three of them and one of shardbench's own layers; returns the mean squared error.
class Net : public Module {
 public:
  Net() {
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(&add_child<GatedBlock>("blocks." + std::to_string(i), 16));
    }
    head_ = &add_child<Linear>("head", 16, 1);
  }
  std::string_view class_name() const override { return "Net"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    at::Tensor x = inputs[0];
    for (GatedBlock* block : blocks_) x = (*block)(x);
    return at::mse_loss((*head_)(x), inputs[1]);
  }

 private:
  std::vector<GatedBlock*> blocks_;
  Linear* head_ = nullptr;
};

std::string run_rank(const std::string& strategy, comm::Communicator& ranks) {
  at::set_num_threads(1);
  Model model("net", std::make_unique<Net>());
  train::Session session(model, all_strategies().find(strategy).make(), ranks,
                         {.optimizer = {.lr = 1e-2}});
  for (int step = 1; step <= 30; ++step) {
    const auto result = session.step([&](int) {
      const at::Tensor x = at::sin(at::arange(8 * 16).view({8, 16}).add(5.0 * ranks.rank()));
      return model(x, x.sum(1, /*keepdim=*/true));
    });
    if (ranks.rank() == 0) fmt::print("step {:2}  loss {:.9g}\n", step, result.loss);
    std::fflush(stdout);
  }
  return "done";
}

int main(int argc, char** argv) try {
  const std::string strategy = argc > 1 ? argv[1] : "fsdp";
  const int world_size = argc > 2 ? std::stoi(argv[2]) : 2;
  all_strategies().find(strategy);
  if (world_size == 1) return run_rank(strategy, *comm::make_local()), 0;
  const auto job = comm::Job::create({.world_size = world_size});
  const auto outcome = comm::run_forked(
      job, [&](int rank) { return run_rank(strategy, *comm::make_shm(job, rank)); });
  if (outcome.failure) fmt::print(stderr, "{}\n", outcome.failure->message);
  return outcome.ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
