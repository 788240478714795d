// What bf16 and fp16 get wrong easily: precision of sums, dtypes that meet in one unit, buffers
// that are cast along, communication buffers that are used again too early.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/rms_norm.h"
#include "tests/support/chain.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

constexpr DType kBf16 = DType::kBFloat16;

void expect_all(const StrategyCase& test, const std::vector<int>& worlds) {
  for (const std::string& strategy : strategy_names()) {
    for (int world : worlds) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

/// Its gradient is whatever the input is.
class Gradient : public Module {
 public:
  Gradient() { value_ = &add_parameter("value", {16, 1}, Init::constant(0)); }
  std::string_view class_name() const override { return "Gradient"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (value_->tracked().to(at::kFloat) * inputs[0]).sum();
  }

 private:
  Parameter* value_;
};

/// The averaged gradient of `rank_value(rank)` on eight ranks must be `expected`.
void expect_average(const train::StrategyOptions& options,
                    const std::function<double(int)>& rank_value, double expected) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("g", std::make_unique<Gradient>()); };
  test.forward = [&](Model& model, int, int, int rank) {
    return std::vector<at::Tensor>{model(at::full({16, 1}, rank_value(rank), at::kFloat))};
  };
  test.options = options;
  test.steps = 1;
  test.after_step = [&](const StrategyCase::Seen& seen) {
    for (const OwnedPiece& piece : seen.strategy.owned().pieces) {
      for (std::int64_t i = 0; i < piece.count; ++i) {
        SHARDBENCH_CHECK(piece.gradient[i] == static_cast<float>(expected), "{} against {}",
                         piece.gradient[i], expected);
      }
    }
  };
  expect_all(test, {8});
}

train::StrategyOptions options_of(DType compute, DType reduce) {
  train::StrategyOptions options;
  options.compute_dtype = compute;
  options.reduce_dtype = reduce;
  return options;
}

// 1 and seven times 2^-9. A running sum in bf16 stays at 1.
TEST(PrecisionCases, SmallGradientsBesideALargeOneAreNotLost) {
  const auto value = [](int rank) { return rank == 0 ? 1.0 : 0x1p-9; };
  expect_average(options_of(kBf16, DType::kFloat32), value, 1.013671875 / 8);
  expect_average(options_of(kBf16, kBf16), value, 1.015625 / 8);  // added up wide, rounded once
}

// Adding first overflows, dividing first underflows.
TEST(PrecisionCases, AveragesInFp16NeitherOverflowNorVanish) {
  for (const double gradient : {60000.0, 0x1p-23}) {
    const double kept = gradient == 60000.0 ? 60000.0 : 0x1p-23;
    expect_average(
        options_of(DType::kFloat16, DType::kFloat16), [gradient](int) { return gradient; }, kept);
  }
}

TEST(PrecisionCases, MatricesAndVectorsInOneUnit) {
  for (DType dtype : {kBf16, DType::kFloat16}) {
    StrategyCase test = chain_case(
        [](Chain& c) {
          c.add<Linear>("fc", 6, 10);
          c.add<LayerNorm>("norm", 10);
          c.add<RMSNorm>("rms", 10);
          c.add<Linear>("out", 10, 7, false);
          c.add<Scale>("temperature", std::vector<std::int64_t>{});
        },
        6, dtype);
    for (const char* units : {"whole", "tensor"}) {
      test.units = units;
      test.after_step = [dtype](const StrategyCase::Seen& seen) {
        for (const Parameter* p : seen.model.parameters()) SHARDBENCH_CHECK(p->dtype() == dtype);
      };
      expect_all(test, {1, 2, 3});
    }
  }
}

/// A layer with memory of other types beside its weights, which a cast would spoil.
class WithBuffers : public Module {
 public:
  WithBuffers()
      : fc_(&add_child<Linear>("fc", 6, 12)),
        norm_(&add_child<BatchNorm>("norm", 12)),
        positions_(at::arange(300, at::kLong)),
        mask_(at::arange(12, at::kLong).remainder(3).ne(0)) {}
  std::string_view class_name() const override { return "WithBuffers"; }

  void check() const {
    SHARDBENCH_CHECK(at::equal(positions_, at::arange(300, at::kLong)));
    SHARDBENCH_CHECK(mask_.scalar_type() == at::kBool && mask_.sum().item<std::int64_t>() == 8);
  }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const at::Tensor x = (*norm_)((*fc_)(inputs[0]));
    const at::Tensor kept = x.masked_fill(mask_.logical_not(), 0);
    return kept.index_select(1, positions_.narrow(0, 0, 12)).to(at::kFloat).square().mean();
  }

 private:
  Linear* fc_;
  BatchNorm* norm_;
  at::Tensor positions_;
  at::Tensor mask_;
};

TEST(PrecisionCases, BuffersKeepTheirTypes) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("buffers", std::make_unique<WithBuffers>()); };
  test.options.compute_dtype = kBf16;
  test.forward = feed(6, 5, kBf16);
  test.after_step = [](const StrategyCase::Seen& seen) {
    dynamic_cast<const WithBuffers&>(seen.model.root()).check();
    for (const ModuleBuffer* buffer : seen.model.buffers()) {
      SHARDBENCH_CHECK(buffer->tensor.scalar_type() == at::kFloat, "{}", buffer->name);
      // More digits than bf16 has: running statistics were added up in fp32.
      SHARDBENCH_CHECK(!at::equal(buffer->tensor, buffer->tensor.to(at::kBFloat16).to(at::kFloat)),
                       "{}", buffer->name);
    }
  };
  expect_all(test, {1, 2, 3});
}

// Fresh and freed memory is NaN, so what is read too early, or used again too early, shows.
TEST(PrecisionCases, OverlapKeepsTheBitsAfterManySteps) {
  for (DType reduce : {DType::kFloat32, kBf16}) {
    StrategyCase test = chain_case(
        [](Chain& c) {
          for (int i = 0; i < 4; ++i) c.add<Linear>("fc" + std::to_string(i), 9, 9);
        },
        9, kBf16);
    test.options.reduce_dtype = reduce;
    test.units = "class:Linear";
    test.poison_memory = true;
    test.steps = 20;
    test.options.bucket_cap_mib = test.options.first_bucket_mib = 1e-4;
    for (int ahead : {0, 1, 3}) {
      test.options.forward_prefetch = test.options.backward_prefetch = ahead;
      expect_all(test, {3});
    }
  }
}

TEST(PrecisionCases, BucketSizesDoNotChangeBits) {
  StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("a", 6, 100);
        c.add<Linear>("b", 100, 10);
      },
      6, kBf16);
  test.steps = 10;
  test.options.reduce_dtype = kBf16;
  for (double cap : {1e-9, 1.0 / 1024, 0.04}) {  // one element, 1 KB, five times the model
    test.options.bucket_cap_mib = test.options.first_bucket_mib = cap;
    for (const char* strategy : {"ddp", "zero1"}) EXPECT_EQ(run_case(test, strategy, 3), "");
  }
}

TEST(PrecisionCases, EmptyShardsAndFewParameters) {
  expect_all(chain_case([](Chain& c) { c.add<Linear>("fc", 4, 3, false); }, 4, kBf16), {4, 8});
  expect_all(chain_case([](Chain& c) { c.add<Linear>("fc", 1, 1, false); }, 1, kBf16), {4});
}

/// One weight used twice, by an embedding and by a head, and one that is frozen.
class Tied : public Module {
 public:
  Tied()
      : embed_(&add_child<Embedding>("embed", 11, 6, Init::normal(1))),
        frozen_(&add_child<Linear>("frozen", 6, 6)),
        head_(&add_child<Linear>("head", embed_->weight())) {}
  std::string_view class_name() const override { return "Tied"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (*head_)((*frozen_)((*embed_)(inputs[0]))).to(at::kFloat).square().mean();
  }

 private:
  Embedding* embed_;
  Linear* frozen_;
  Linear* head_;
};

TEST(PrecisionCases, TiedAndFrozenWeights) {
  StrategyCase test;
  test.build = [] {
    auto model = std::make_unique<Model>("tied", std::make_unique<Tied>());
    for (const char* name : {"frozen.weight", "frozen.bias"}) {
      model->set_requires_grad(model->parameter(name), false);
    }
    return model;
  };
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor tokens = at::arange(8, at::kLong).mul(step + 2).add(micro + 3 * rank);
    return std::vector<at::Tensor>{model(tokens.remainder(11))};
  };
  test.accumulation = 2;
  for (DType compute : {DType::kFloat32, kBf16}) {
    for (DType reduce : {DType::kFloat32, kBf16}) {
      test.options = options_of(compute, reduce);
      for (const char* units : {"whole", "tensor"}) {
        test.units = units;
        expect_all(test, {1, 3});
      }
    }
  }
}

}  // namespace
}  // namespace shardbench::testing
