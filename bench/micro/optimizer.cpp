// What the optimizer step of one rank does: updates over flat memory and the gradient's norm.

#include <ATen/ATen.h>

#include <vector>

#include "bench/micro/micro.h"
#include "common/modules/parameter.h"
#include "common/optim/exact_sum.h"
#include "common/optim/kernels.h"
#include "common/optim/norm.h"
#include "common/optim/optimizer.h"

namespace shardbench::micro {

namespace {

using benchmark::State;

at::Tensor random(std::int64_t count) { return at::randn({count}, at::kFloat); }

void adamw(State& state) {
  const std::int64_t count = state.range(0);
  const at::Tensor gradient = random(count), value = random(count);
  const at::Tensor first = at::zeros({count}, at::kFloat), second = at::zeros({count}, at::kFloat);
  const optim::AdamWStep step{1e-3f, 0.1f, 0.9f, 0.95f, 1e-8f, 1e-2f, 4.5f, 1.0f};
  for (auto _ : state) {
    optim::adamw(step, count, gradient.const_data_ptr<float>(), value.mutable_data_ptr<float>(),
                 first.mutable_data_ptr<float>(), second.mutable_data_ptr<float>());
    benchmark::ClobberMemory();
  }
  set_rate(state, "elements_per_second", static_cast<double>(count));
  set_bytes(state, 28.0 * static_cast<double>(count));  // reads four arrays, writes three
}

void sgd(State& state) {
  const std::int64_t count = state.range(0);
  const at::Tensor gradient = random(count), value = random(count), momentum = random(count);
  const optim::SgdStep step{1e-3f, 0.1f, 0.9f, 1.0f};
  for (auto _ : state) {
    optim::sgd(step, count, gradient.const_data_ptr<float>(), value.mutable_data_ptr<float>(),
               momentum.mutable_data_ptr<float>());
    benchmark::ClobberMemory();
  }
  set_rate(state, "elements_per_second", static_cast<double>(count));
  set_bytes(state, 20.0 * static_cast<double>(count));
}

/// A flat shard of matrices [rows, width], as an optimizer sees it.
class FlatShard {
 public:
  FlatShard(std::int64_t matrices, std::int64_t rows, std::int64_t width)
      : values_(random(matrices * rows * width)), gradients_(random(matrices * rows * width)) {
    const std::int64_t each = rows * width;
    for (std::int64_t i = 0; i < matrices; ++i) {
      parameters_.push_back(std::make_unique<Parameter>(
          "weight" + std::to_string(i), std::vector<std::int64_t>{rows, width}, Init::constant(0)));
      parameters_.back()->set_index(static_cast<int>(i));
      owned_.pieces.push_back({parameters_.back().get(), 0, each,
                               values_.mutable_data_ptr<float>() + i * each,
                               gradients_.mutable_data_ptr<float>() + i * each, i * each});
    }
    owned_.state_extent = matrices * each;
  }

  const Owned& owned() const { return owned_; }
  std::vector<char> all_used() const { return std::vector<char>(parameters_.size(), 1); }

 private:
  at::Tensor values_, gradients_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  Owned owned_;
};

void step_of(State& state, train::OptimizerKind kind) {
  const FlatShard shard(state.range(0), state.range(1), state.range(2));
  train::OptimizerConfig config;
  config.kind = kind;
  const std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer(config, shard.owned());
  const std::vector<char> used = shard.all_used();
  for (auto _ : state) optimizer->step(shard.owned(), used, 1.0f);
  set_rate(state, "elements_per_second", static_cast<double>(shard.owned().state_extent));
}

void adamw_step(State& state) { step_of(state, train::OptimizerKind::kAdamW); }
void sgd_step(State& state) { step_of(state, train::OptimizerKind::kSgd); }

void gradient_norm(State& state) {
  const FlatShard shard(state.range(0), state.range(1), state.range(2));
  const std::vector<char> used = shard.all_used();
  for (auto _ : state) {
    optim::ExactSum sum;
    optim::add_squares(shard.owned(), used, sum);
    benchmark::DoNotOptimize(sum.value());
  }
  set_rate(state, "elements_per_second", static_cast<double>(shard.owned().state_extent));
}

}  // namespace

void register_benchmarks() {
  const auto kernel = [](const char* name, void (*run)(State&)) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgName("elements")
        ->Arg(1 << 12)
        ->Arg(1 << 18)
        ->Arg(1 << 24)
        ->Unit(benchmark::kMicrosecond);
  };
  kernel("adamw", adamw);
  kernel("sgd", sgd);
  const auto shard = [](const char* name, void (*run)(State&)) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgNames({"matrices", "rows", "width"})
        ->Args({12, 768, 768})
        ->Args({48, 96, 384})
        ->Unit(benchmark::kMicrosecond);
  };
  shard("adamw_step", adamw_step);
  shard("sgd_step", sgd_step);
  shard("gradient_norm", gradient_norm);
}

}  // namespace shardbench::micro
