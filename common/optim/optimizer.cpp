#include "common/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/modules/parameter.h"
#include "common/ops/on_host.h"
#include "common/optim/device_kernels.h"
#include "common/optim/kernels.h"

namespace shardbench::optim {

namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements per thread, multiples of a cache line

/// Zeroed optimizer state: `moments` numbers for each element. A step goes through values and
/// moments side by side, so that in large ones each starts a quarter of a page further on than the
/// one before, values first. Lines at the same offset of their pages share a set of the first-level
/// cache, and where a hash of the higher address bits is the same too, the way predictors of AMD's
/// cores let them throw each other out, at every line.
class State {
 public:
  State(const Owned& owned, int moments) : stride_(owned.state_extent) {
    const at::Device device =
        owned.pieces.empty() ? at::Device(at::kCPU) : owned.pieces.front().parameter->device();
    const bool is_large = device.is_cpu() && stride_ >= kSmallestStaggered;
    if (is_large) stride_ = (stride_ + kPage - 1) / kPage * kPage + kQuarter;
    memory::CategoryScope scope(memory::Category::kOptimizer);
    memory_ = at::zeros({moments * stride_ + (is_large ? kPage : 0)},
                        at::dtype(at::kFloat).device(device));
    if (!is_large) return;
    memory::book_as_unused(memory_, kSize * (memory_.numel() - moments * owned.state_extent));
    const OwnedPiece& first = owned.pieces.front();
    first_ = (place(first.value) + kQuarter - place(of(first, 0))) & (kPage - 1);
  }
  bool on_host() const { return ops::on_host(memory_); }
  float* of(const OwnedPiece& piece, int moment) const {
    return flat::address(memory_) + begin(piece, moment);
  }
  at::Tensor view(const OwnedPiece& piece, int moment) const {
    return memory_.narrow(0, begin(piece, moment), piece.count);
  }

 private:
  static constexpr std::int64_t kSize = sizeof(float);
  static constexpr std::int64_t kPage = 4096 / kSize;
  static constexpr std::int64_t kQuarter = kPage / 4;
  static constexpr std::int64_t kSmallestStaggered = 1 << 18;

  static std::int64_t place(const float* data) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data)) / kSize;
  }
  std::int64_t begin(const OwnedPiece& piece, int moment) const {
    return first_ + moment * stride_ + piece.state_offset;
  }

  std::int64_t stride_;     ///< from one moment to the next, in elements
  std::int64_t first_ = 0;  ///< where the first begins
  at::Tensor memory_;
};

/// What a step reads and writes, as flat views of the piece's memory.
at::Tensor value_of(const OwnedPiece& piece) {
  return flat::view(piece.value, {piece.count}, DType::kFloat32, piece.parameter->device());
}
at::Tensor gradient_of(const OwnedPiece& piece) {
  return flat::view(piece.gradient, {piece.count}, DType::kFloat32, piece.parameter->device());
}

class AdamW : public Optimizer {
 public:
  AdamW(const train::OptimizerConfig& config, const Owned& owned)
      : Optimizer(config), state_(owned, 2) {}

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
      if (!state_.on_host()) {
        on_device::adamw(s, gradient_of(piece), value_of(piece), state_.view(piece, 0),
                         state_.view(piece, 1));
        continue;
      }
      float* m = state_.of(piece, 0);
      float* v = state_.of(piece, 1);
      at::parallel_for(0, piece.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        adamw(s, end - begin, piece.gradient + begin, piece.value + begin, m + begin, v + begin);
      });
    }
  }
  const float* first_moment(const OwnedPiece& piece) const override { return state_.of(piece, 0); }
  const float* second_moment(const OwnedPiece& piece) const override { return state_.of(piece, 1); }

 private:
  State state_;             // first moment, second moment
  std::vector<int> steps_;  // by parameter index, of those with a piece here
};

class Sgd : public Optimizer {
 public:
  Sgd(const train::OptimizerConfig& config, const Owned& owned)
      : Optimizer(config), momentum_(owned, 1) {}

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
      if (!momentum_.on_host()) {
        on_device::sgd(s, gradient_of(piece), value_of(piece), momentum_.view(piece, 0));
        continue;
      }
      float* b = momentum_.of(piece, 0);
      at::parallel_for(0, piece.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        sgd(s, end - begin, piece.gradient + begin, piece.value + begin, b + begin);
      });
    }
  }
  const float* first_moment(const OwnedPiece& piece) const override {
    return momentum_.of(piece, 0);
  }
  const float* second_moment(const OwnedPiece&) const override { return nullptr; }

 private:
  State momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const train::OptimizerConfig& config,
                                          const Owned& owned) {
  train::validate(config);
  if (config.kind == train::OptimizerKind::kSgd) return std::make_unique<Sgd>(config, owned);
  return std::make_unique<AdamW>(config, owned);
}

}  // namespace shardbench::optim
