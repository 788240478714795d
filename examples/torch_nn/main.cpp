// An existing torch::nn module, trained under any strategy:
//   torch_nn [STRATEGY] [RANKS]             (fsdp, 2)
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/torch_nn/adapter.h"
#include "shardbench.h"
using namespace shardbench;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    in = register_module("in", torch::nn::Linear(32, 64));
    out = register_module("out", torch::nn::Linear(64, 32));
  }
  at::Tensor forward(at::Tensor x) { return x + out(at::gelu(in(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear in{nullptr}, out{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    tokens = register_module("tokens", torch::nn::Embedding(50, 32));
    for (int i = 0; i < 2; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block()));
    }
  }
  at::Tensor forward(at::Tensor text) {
    at::Tensor x = tokens(text);
    for (const Block& block : blocks) x = torch_nn::call(block, x);  // was: x = block(x)
    return at::matmul(x, tokens->weight.t());                        // tied output layer
  }
  torch::nn::Embedding tokens{nullptr};
  std::vector<Block> blocks;
};
TORCH_MODULE(Net);

std::string run_rank(const std::string& strategy, comm::Communicator& ranks) {
  at::set_num_threads(1);
  torch::manual_seed(1);  // every rank starts from the same weights, or loads the same file
  Net net;
  const auto model = torch_nn::adapt(net, {.units = {"block0", "block1"}});
  const at::Tensor text = at::arange(4 * 17, at::kLong).view({4, 17}).add(3 * ranks.rank()) % 50;
  const at::Tensor input = text.slice(1, 0, 16), target = text.slice(1, 1, 17).reshape({-1});
  {
    train::Session session(*model, all_strategies().find(strategy).make(), ranks,
                           {.optimizer = {.lr = 1e-2}});
    for (int step = 1; step <= 20; ++step) {
      const auto result = session.step([&](int) {
        return at::cross_entropy_loss((*model)(input).view({-1, 50}), target);
      });
      if (ranks.rank() == 0) fmt::print("step {:2}  loss {:.9g}\n", step, result.loss);
      std::fflush(stdout);
    }
    torch_nn::give_back(*model);  // net has its trained weights again
  }
  const at::Tensor loss = at::cross_entropy_loss(net(input).view({-1, 50}), target);
  return fmt::format("{:.9g}", loss.item<double>());
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
