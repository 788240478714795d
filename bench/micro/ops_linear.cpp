// Passes of a linear layer, candidate by candidate. The weight (and its gradient) is another piece
// of a large pool at each call, so it comes from memory as in a training step.

#include "bench/micro/ops_linear.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/micro/micro.h"
#include "common/ops/linear_candidates.h"

namespace shardbench::micro {

namespace {

using ops::Candidate;
using ops::Pass;
using ops::TuneKey;

at::Tensor random(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat)).uniform_(-0.5, 0.5);
}

class Weights {
 public:
  explicit Weights(const TuneKey& key)
      : key_(key),
        count_(key.in * key.out),
        stride_((count_ + 15) / 16 * 16),
        memory_(random({std::max(std::int64_t{1} << 24, stride_)})) {}

  at::Tensor next() {
    if (offset_ + count_ > memory_.numel()) offset_ = 0;
    const at::Tensor piece = memory_.narrow(0, offset_, count_).view({key_.out, key_.in});
    offset_ += stride_;
    return piece;
  }

 private:
  TuneKey key_;
  std::int64_t count_;
  std::int64_t stride_;
  at::Tensor memory_;
  std::int64_t offset_ = 0;
};

void measure(benchmark::State& state, const TuneKey& key, Candidate candidate) {
  Weights weights(key);
  const at::Tensor x = random({key.rows, key.in}), grad = random({key.rows, key.out});
  const at::Tensor bias = key.bias ? random({key.out}) : at::Tensor();
  for (auto _ : state) {
    at::Tensor result;
    switch (key.pass) {
      case Pass::kForward:
        result = ops::linear_by(candidate, x, weights.next(), bias);
        break;
      case Pass::kInputGrad:
        result = ops::linear_input_grad_by(candidate, grad, weights.next());
        break;
      case Pass::kWeightGrad:
        ops::linear_weight_grad_by(candidate, grad, x, weights.next(), key.accumulate);
        break;
    }
    benchmark::ClobberMemory();
  }
  set_rate(state, "flop_per_second",
           2.0 * static_cast<double>(key.rows) * static_cast<double>(key.in * key.out));
}

void add(const TuneKey& key) {
  for (Candidate candidate : ops::candidates_for(key)) {
    if (!ops::available(candidate)) continue;
    const std::string name = fmt::format(
        "linear/{}{}{}/{}x{}x{}/{}", name_of(key.pass), key.bias ? "_bias" : "",
        key.accumulate ? "_accumulate" : "", key.rows, key.in, key.out, name_of(candidate));
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      measure(state, key, candidate);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

void register_linear() {
  struct Layer {
    std::int64_t rows, in, out;
    bool bias;
  };
  // gpt2-nano with batch 4 and gpt2 with batch 1, sequences of 128.
  const std::vector<Layer> layers = {{512, 384, 1152, true}, {512, 384, 384, true},
                                     {512, 384, 1536, true}, {512, 1536, 384, true},
                                     {512, 384, 256, false}, {128, 768, 2304, true},
                                     {128, 768, 768, true},  {128, 768, 3072, true},
                                     {128, 3072, 768, true}, {128, 768, 50257, false}};
  for (const Layer& layer : layers) {
    const auto key = [&](Pass pass, bool bias, bool accumulate) -> TuneKey {
      return {pass, DType::kFloat32, bias, accumulate, layer.rows, layer.in, layer.out};
    };
    add(key(Pass::kForward, layer.bias, false));
    add(key(Pass::kInputGrad, false, false));
    add(key(Pass::kWeightGrad, false, false));
    add(key(Pass::kWeightGrad, false, true));
  }
}

}  // namespace shardbench::micro
