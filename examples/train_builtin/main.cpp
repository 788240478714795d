// Trains a model built from shardbench's layers under any strategy and number of ranks:
//   train_builtin [STRATEGY] [RANKS]        (fsdp, 2; see all_strategies)
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "shardbench.h"
using namespace shardbench;

std::string run_rank(const std::string& strategy, comm::Communicator& ranks) {
  at::set_num_threads(1);  // ranks share the cores
  models::ModelConfig config = models::preset("gpt2-nano");
  config.layers = 2;
  config.hidden = 96;
  const auto model = models::build(config);
  train::Session session(*model, all_strategies().find(strategy).make(), ranks,
                         {.optimizer = {.lr = 3e-3}, .max_norm = 1.0});
  for (int step = 1; step <= 20; ++step) {
    const auto result = session.step([&](int) {
      // This rank's data: four texts of 33 tokens that count upwards.
      const at::Tensor starts = at::arange(4, at::kLong).mul(31).add(7 * ranks.rank());
      const at::Tensor text = (starts.unsqueeze(1) + at::arange(33, at::kLong)).remainder(256);
      return (*model)(text.slice(1, 0, 32).contiguous(), text.slice(1, 1, 33).contiguous());
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
  if (world_size == 1) return run_rank(strategy, *comm::make_local()), 0;  // this process alone
  const auto job = comm::Job::create({.world_size = world_size});
  const auto outcome = comm::run_forked(  // one process per rank
      job, [&](int rank) { return run_rank(strategy, *comm::make_shm(job, rank)); });
  if (outcome.failure) fmt::print(stderr, "{}\n", outcome.failure->message);
  return outcome.ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
