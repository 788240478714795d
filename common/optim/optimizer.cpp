#include "common/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"
#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/modules/parameter.h"
#include "common/ops/on_host.h"
#include "common/optim/device_kernels.h"
#include "common/optim/kernels.h"

namespace shardbench::optim {

namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements per thread, multiples of a cache line

at::Tensor zero_moment(const Owned& owned) {
  memory::CategoryScope scope(memory::Category::kOptimizer);
  const at::Device device =
      owned.pieces.empty() ? at::Device(at::kCPU) : owned.pieces.front().parameter->device();
  return at::zeros({owned.state_extent}, at::dtype(at::kFloat).device(device));
}

/// What a step reads and writes, as flat views of the piece's memory.
at::Tensor value_of(const OwnedPiece& piece) {
  return flat::view(piece.value, {piece.count}, DType::kFloat32, piece.parameter->device());
}
at::Tensor gradient_of(const OwnedPiece& piece) {
  return flat::view(piece.gradient, {piece.count}, DType::kFloat32, piece.parameter->device());
}
at::Tensor moment_of(const at::Tensor& moments, const OwnedPiece& piece) {
  return moments.narrow(0, piece.state_offset, piece.count);
}

class AdamW : public Optimizer {
 public:
  AdamW(const train::OptimizerConfig& config, const Owned& owned)
      : Optimizer(config), first_(zero_moment(owned)), second_(zero_moment(owned)) {}

  using Optimizer::step;
  void step(std::span<const OwnedPiece> pieces, const std::vector<char>& used,
            float gradient_scale) override {
    AdamWStep s{};
    s.lr = static_cast<float>(config_.lr);
    s.beta1 = static_cast<float>(config_.beta1);
    s.beta2 = static_cast<float>(config_.beta2);
    s.eps = static_cast<float>(config_.eps);
    s.gradient_scale = gradient_scale;
    steps_.resize(used.size());
    for (const OwnedPiece& piece : pieces) {
      const auto index = static_cast<std::size_t>(piece.parameter->index());
      if (!used[index]) continue;
      // A parameter's own count: one that joins later starts at t = 1 then, as in torch.
      const int t = ++steps_[index];
      s.step_size = static_cast<float>(config_.lr / (1 - std::pow(config_.beta1, t)));
      s.inverse_root_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(config_.beta2, t)));
      s.weight_decay = piece.parameter->decay() ? static_cast<float>(config_.weight_decay) : 0.0f;
      if (!ops::on_host(first_)) {
        on_device::adamw(s, gradient_of(piece), value_of(piece), moment_of(first_, piece),
                         moment_of(second_, piece));
        continue;
      }
      float* m = flat::address(first_) + piece.state_offset;
      float* v = flat::address(second_) + piece.state_offset;
      at::parallel_for(0, piece.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        adamw(s, end - begin, piece.gradient + begin, piece.value + begin, m + begin, v + begin);
      });
    }
  }
  const float* first_moment(const OwnedPiece& piece) const override {
    return flat::address(first_) + piece.state_offset;
  }
  const float* second_moment(const OwnedPiece& piece) const override {
    return flat::address(second_) + piece.state_offset;
  }

 private:
  at::Tensor first_;
  at::Tensor second_;
  std::vector<int> steps_;  // by parameter index, of those with a piece here
};

class Sgd : public Optimizer {
 public:
  Sgd(const train::OptimizerConfig& config, const Owned& owned)
      : Optimizer(config), momentum_(zero_moment(owned)) {}

  using Optimizer::step;
  void step(std::span<const OwnedPiece> pieces, const std::vector<char>& used,
            float gradient_scale) override {
    SgdStep s{};
    s.lr = static_cast<float>(config_.lr);
    s.momentum = static_cast<float>(config_.momentum);
    s.gradient_scale = gradient_scale;
    for (const OwnedPiece& piece : pieces) {
      if (!used[static_cast<std::size_t>(piece.parameter->index())]) continue;
      s.weight_decay = piece.parameter->decay() ? static_cast<float>(config_.weight_decay) : 0.0f;
      if (!ops::on_host(momentum_)) {
        on_device::sgd(s, gradient_of(piece), value_of(piece), moment_of(momentum_, piece));
        continue;
      }
      float* b = flat::address(momentum_) + piece.state_offset;
      at::parallel_for(0, piece.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        sgd(s, end - begin, piece.gradient + begin, piece.value + begin, b + begin);
      });
    }
  }
  const float* first_moment(const OwnedPiece& piece) const override {
    return flat::address(momentum_) + piece.state_offset;
  }
  const float* second_moment(const OwnedPiece&) const override { return nullptr; }

 private:
  at::Tensor momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const train::OptimizerConfig& config,
                                          const Owned& owned) {
  train::validate(config);
  if (config.kind == train::OptimizerKind::kSgd) return std::make_unique<Sgd>(config, owned);
  return std::make_unique<AdamW>(config, owned);
}

}  // namespace shardbench::optim
