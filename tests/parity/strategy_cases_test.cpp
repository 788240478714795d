// Models that are awkward to shard: every strategy must give the bits of one process.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/comm/local/local.h"
#include "common/core/error.h"
#include "common/memory/tracker.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/train/single.h"
#include "tests/support/chain.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

void expect_all(const StrategyCase& test, const std::vector<int>& worlds) {
  for (const std::string& strategy : strategy_names()) {
    for (int world : worlds) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

TEST(StrategyCases, ScalarParameter) {
  const StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("fc", 5, 7);
        c.add<Scale>("temperature", std::vector<std::int64_t>{});
      },
      5);
  expect_all(test, {1, 2, 3});
}

TEST(StrategyCases, EmptyShards) {  // 18 rows over 8 ranks leave two ranks with nothing
  const StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("fc", 4, 18, false);
        c.add<Scale>("one", std::vector<std::int64_t>{1});
      },
      4);
  expect_all(test, {4, 8});
}

TEST(StrategyCases, FewerParametersThanRanks) {
  const StrategyCase test = chain_case([](Chain& c) { c.add<Linear>("fc", 1, 1, false); }, 1);
  expect_all(test, {4});
}

TEST(StrategyCases, MemoryThatStartsAsNaN) {
  StrategyCase test = chain_case([](Chain& c) { c.add<Linear>("fc", 3, 5); }, 3);
  test.poison_memory = true;
  test.max_norm = 0.01;
  test.after_step = [](const StrategyCase::Seen& seen) {
    SHARDBENCH_CHECK(std::isfinite(seen.gradient_norm), "norm {}", seen.gradient_norm);
  };
  expect_all(test, {1, 3, 4});
}

TEST(StrategyCases, NestedUnitWithOneElement) {
  class Inner : public Module {
   public:
    Inner()
        : fc_(&add_child<Linear>("fc", 6, 6)),
          scale_(&add_child<Scale>("s", std::vector<std::int64_t>{1})) {}
    std::string_view class_name() const override { return "Inner"; }

   protected:
    at::Tensor forward(const Tensors& inputs) override { return (*scale_)((*fc_)(inputs[0])); }

   private:
    Module* fc_;
    Module* scale_;
  };
  StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Inner>("a");
        c.add<Inner>("b");
      },
      6);
  for (const char* units : {"class:Scale", "class:Inner", "tensor", "whole"}) {
    test.units = units;
    expect_all(test, {1, 2});
  }
}

TEST(StrategyCases, OddWorldSizesAndPrimeShapes) {
  const StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("a", 13, 17);
        c.add<LayerNorm>("n", 17);
        c.add<Linear>("b", 17, 11);
      },
      13);
  expect_all(test, {3, 5, 7});
}

TEST(StrategyCases, AllUnitPoliciesReshardAndPrefetch) {
  StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("a", 6, 10);
        c.add<Linear>("b", 10, 10);
        c.add<Linear>("c", 10, 3);
      },
      6);
  for (const char* units : {"block", "tensor", "whole", "size:80", "class:Linear"}) {
    for (const train::Reshard reshard :
         {train::Reshard::kTrue, train::Reshard::kFalse, train::Reshard::kAuto}) {
      for (int prefetch : {0, 2}) {
        test.units = units;
        test.options.reshard_after_forward = reshard;
        test.options.forward_prefetch = prefetch;
        test.options.backward_prefetch = prefetch;
        for (const char* strategy : {"zero3", "fsdp"}) EXPECT_EQ(run_case(test, strategy, 2), "");
      }
    }
  }
}

TEST(StrategyCases, BucketSizesDoNotChangeBits) {
  StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("a", 6, 100);
        c.add<Linear>("b", 100, 10);
      },
      6);
  for (double cap : {1e-6, 1e-3, 25.0}) {
    test.options.bucket_cap_mib = cap;
    test.options.first_bucket_mib = cap;
    EXPECT_EQ(run_case(test, "ddp", 3), "");
  }
}

/// A model with a layer that is never called.
class WithUnused : public Module {
 public:
  WithUnused() : used_(&add_child<Linear>("used", 4, 4)) { add_child<Linear>("unused", 4, 4); }
  std::string_view class_name() const override { return "WithUnused"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override { return (*used_)(inputs[0]).square().mean(); }

 private:
  Module* used_;
};

TEST(StrategyCases, UnusedParametersStayAsTheyAre) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("m", std::make_unique<WithUnused>()); };
  test.forward = feed(4);
  test.optimizer.weight_decay = 0.1;
  test.after_step = [](const StrategyCase::Seen& seen) {
    // The optimizer must not even decay it: compare with the initial values of a fresh model.
    for (const OwnedPiece& piece : seen.strategy.owned().pieces) {
      if (piece.parameter->name() != "unused.weight") continue;
      SHARDBENCH_CHECK_EQ(seen.strategy.used()[piece.parameter->index()], 0);
    }
  };
  for (const char* units : {"block", "whole", "tensor"}) {
    test.units = units;
    expect_all(test, {1, 2, 3});
  }
}

/// Rank-dependent branches.
class Branches : public Module {
 public:
  Branches() : a_(&add_child<Linear>("a", 4, 4)), b_(&add_child<Linear>("b", 4, 4)) {}
  std::string_view class_name() const override { return "Branches"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    Module* branch = inputs[1].item<double>() > 0 ? a_ : b_;
    return (*branch)(inputs[0]).square().mean();
  }

 private:
  Module* a_;
  Module* b_;
};

StrategyCase branch_case() {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("m", std::make_unique<Branches>()); };
  test.forward = [](Model& model, int step, int micro, int rank) {
    return std::vector<at::Tensor>{
        model(fixed({3, 4}, step, micro, rank), at::scalar_tensor(rank == 0 ? 1.0 : -1.0))};
  };
  return test;
}

TEST(StrategyCases, ParameterUsedOnSomeRanksOnly) {
  EXPECT_EQ(run_case(branch_case(), "ddp", 2), "");
  // One unit: both ranks unshard the same things, so sharded strategies get the mean too.
  StrategyCase whole = branch_case();
  whole.units = "whole";
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(whole, strategy, 2), "");
}

TEST(StrategyCases, UnitsEnteredInDifferentOrderAreANamedError) {
  StrategyCase test = branch_case();
  for (const char* strategy : {"zero3", "fsdp"}) {
    const std::string failure = run_case(test, strategy, 2);
    EXPECT_NE(failure.find("'a'"), std::string::npos) << failure;
    EXPECT_NE(failure.find("'b'"), std::string::npos) << failure;
  }
}

/// A weight in a unit of its own that only some ranks use, though all enter the unit.
class Conditional : public Module {
 public:
  Conditional() { w_ = &add_parameter("w", {4}, Init::constant(1)); }
  std::string_view class_name() const override { return "Conditional"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const bool use = inputs[0].abs().sum().item<double>() > 0 && uses(inputs[0]);
    return use ? inputs[0] * w_->tracked() : inputs[0] * 2.0f;
  }

 private:
  static bool uses(const at::Tensor& x) { return x.view({-1})[0].item<float>() > 0; }
  Parameter* w_;
};

TEST(StrategyCases, UnitEnteredEverywhereWrittenOnSomeRanks) {
  StrategyCase test = chain_case(
      [](Chain& c) {
        c.add<Linear>("a", 4, 4);
        c.add<Conditional>("maybe");
      },
      4);
  test.units = "class:Conditional";
  expect_all(test, {2, 3});
}

TEST(StrategyCases, AttachedTwiceInARow) {
  StrategyCase test = chain_case([](Chain& c) { c.add<Linear>("a", 4, 4); }, 4);
  test.after_step = [build = test.build](const StrategyCase::Seen& seen) {
    if (seen.step != 0) return;
    const auto local = comm::make_local();
    const auto model = build();
    for (int round = 0; round < 2; ++round) {
      train::Single strategy;
      strategy.attach({model.get(), local.get(), {}, 1, {}});
      model->detach();
      SHARDBENCH_CHECK(!model->parameters()[0]->bound());
    }
  };
  expect_all(test, {1});
}

std::unique_ptr<Model> frozen_model(bool all) {
  auto root = std::make_unique<Chain>();
  root->add<Linear>("a", 10, 18);
  root->add<Linear>("b", 18, 2);
  auto model = std::make_unique<Model>("frozen", std::move(root));
  for (Parameter* p : model->parameters()) {
    if (all || p->name().starts_with("a.")) model->set_requires_grad(*p, false);
  }
  return model;
}

TEST(StrategyCases, FrozenAndTrainableInOneUnit) {
  StrategyCase test;
  test.build = [] { return frozen_model(false); };
  test.forward = feed(10);
  test.units = "whole";
  test.after_step = [](const StrategyCase::Seen& seen) {
    // Gradient memory is for the trainable 18 x 2 + 2 elements only, in pieces of 64 bytes.
    const memory::CategoryBytes live = memory::tracker().live();
    const std::int64_t grad = live[static_cast<int>(memory::Category::kGrad)];
    SHARDBENCH_CHECK(grad <= (48 + 16) * 4, "gradient memory {} bytes", grad);
    const memory::CategoryBytes peak = memory::tracker().peak_by_category();
    const std::int64_t full = peak[static_cast<int>(memory::Category::kUnshardedGrad)];
    SHARDBENCH_CHECK(full <= (48 + 16) * 4, "full gradient memory {} bytes", full);
    for (const OwnedPiece& piece : seen.strategy.owned().pieces) {
      SHARDBENCH_CHECK(piece.parameter->name().starts_with("b."), "{}", piece.parameter->name());
    }
  };
  expect_all(test, {1, 2, 3});
}

TEST(StrategyCases, NothingTrainable) {
  StrategyCase test;
  test.build = [] { return frozen_model(true); };
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor loss = model(fixed({3, 10}, step, micro, rank));
    SHARDBENCH_CHECK(!loss.requires_grad());
    return std::vector<at::Tensor>{};
  };
  test.after_step = [](const StrategyCase::Seen& seen) {
    for (const comm::TrafficEntry& entry : seen.comm.traffic()) {
      SHARDBENCH_CHECK(entry.phase != Phase::kBackward, "gradient traffic without gradients");
    }
    SHARDBENCH_CHECK_EQ(seen.gradient_norm, 0.0);
  };
  expect_all(test, {1, 2});
}

/// Input and output layer share one weight.
class Tied : public Module {
 public:
  Tied() {
    auto& in = add_child<Embedding>("in", 9, 4, Init::normal(0.5));
    in_ = &in;
    body_ = &add_child<Linear>("body", 4, 4);
    out_ = &add_child<Linear>("out", in.weight());
  }
  std::string_view class_name() const override { return "Tied"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (*out_)((*body_)((*in_)(inputs[0]))).square().mean();
  }

 private:
  Module* in_;
  Module* body_;
  Module* out_;
};

TEST(StrategyCases, TiedWeightAcrossUnits) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("tied", std::make_unique<Tied>()); };
  test.forward = [](Model& model, int step, int, int rank) {
    const at::Tensor tokens = at::arange(6, at::kLong).add(step + rank).remainder(9).view({2, 3});
    return std::vector<at::Tensor>{model(tokens)};
  };
  for (const char* units : {"block", "tensor", "class:Linear", "class:Embedding", "whole"}) {
    test.units = units;
    expect_all(test, {1, 2, 3});
  }
  EXPECT_EQ(test.build()->shape().parameter_count(), 9 * 4 + 4 * 4 + 4);
}

}  // namespace
}  // namespace shardbench::testing
