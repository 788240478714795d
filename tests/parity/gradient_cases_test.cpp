// Gradients that arrive in unusual ways: several graphs, accumulation, clipping.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/linear.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

/// Two layers, the second of which may be called twice in one forward.
class Net : public Module {
 public:
  explicit Net(int calls) : calls_(calls) {
    a_ = &add_child<Linear>("a", 6, 6);
    b_ = &add_child<Linear>("b", 6, 6);
  }
  std::string_view class_name() const override { return "Net"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    at::Tensor x = (*a_)(inputs[0]);
    for (int i = 0; i < calls_; ++i) x = (*b_)(x);
    return x.square().mean();
  }

 private:
  int calls_;
  Module* a_;
  Module* b_;
};

StrategyCase net_case(int calls) {
  StrategyCase test;
  test.build = [calls] { return std::make_unique<Model>("net", std::make_unique<Net>(calls)); };
  test.forward = [](Model& model, int step, int micro, int rank) {
    return std::vector<at::Tensor>{model(fixed({4, 6}, step, micro, rank))};
  };
  return test;
}

TEST(GradientCases, LayerCalledTwiceInOneForward) {
  for (const char* units : {"block", "tensor", "whole"}) {
    StrategyCase test = net_case(2);
    test.units = units;
    for (const std::string& strategy : strategy_names()) {
      for (int world : {1, 2, 3}) EXPECT_EQ(run_case(test, strategy, world), "");
    }
  }
}

TEST(GradientCases, TwoForwardsThenTwoBackwardsInEitherOrder) {
  for (bool reversed : {false, true}) {
    StrategyCase test = net_case(1);
    test.forward = [reversed](Model& model, int step, int micro, int rank) {
      const at::Tensor first = model(fixed({4, 6}, step, micro, rank));
      const at::Tensor second = model(fixed({4, 6}, step + 50, micro, rank));
      return reversed ? std::vector<at::Tensor>{second, first}
                      : std::vector<at::Tensor>{first, second};
    };
    for (const char* units : {"block", "whole"}) {
      test.units = units;
      for (const std::string& strategy : strategy_names()) {
        EXPECT_EQ(run_case(test, strategy, 2), "");
      }
    }
  }
}

TEST(GradientCases, EvaluationBetweenForwardAndBackward) {
  StrategyCase test = net_case(1);
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor loss = model(fixed({4, 6}, step, micro, rank));
    at::NoGradGuard no_grad;
    model(fixed({2, 6}, 99));
    return std::vector<at::Tensor>{loss};
  };
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(test, strategy, 2), "");
}

/// loss = w * x with one weight: its gradient is x itself.
class OneWeight : public Module {
 public:
  OneWeight() { w_ = &add_parameter("w", {1}, Init::constant(0)); }
  std::string_view class_name() const override { return "OneWeight"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override { return (w_->tracked() * inputs[0]).sum(); }

 private:
  Parameter* w_;
};

/// SGD without momentum and decay at lr 1 from 0: after one step the weight is minus the gradient.
StrategyCase one_weight_case(std::function<double(int micro, int rank)> gradient, int accumulation,
                             double expected) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("one", std::make_unique<OneWeight>()); };
  test.forward = [gradient](Model& model, int, int micro, int rank) {
    const double g = gradient(micro, rank);
    if (std::isnan(g)) return std::vector<at::Tensor>{};
    return std::vector<at::Tensor>{model(at::full({1}, g, at::kFloat))};
  };
  test.steps = 1;
  test.accumulation = accumulation;
  test.optimizer.kind = train::OptimizerKind::kSgd;
  test.optimizer.lr = 1.0;
  test.optimizer.weight_decay = 0;
  test.optimizer.momentum = 0;
  test.after_step = [expected](const StrategyCase::Seen& seen) {
    for (const OwnedPiece& piece : seen.strategy.owned().pieces) {
      SHARDBENCH_CHECK(std::abs(-piece.value[0] - expected) < 1e-6, "gradient {}, expected {}",
                       -piece.value[0], expected);
    }
  };
  return test;
}

TEST(GradientCases, AveragesOverRanks) {  // 1 and 3 give 2, not 4
  const auto test = one_weight_case([](int, int rank) { return rank == 0 ? 1.0 : 3.0; }, 1, 2.0);
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(test, strategy, 2), "");
}

TEST(GradientCases, MeanOverMicroBatches) {  // 1, 2, 3, 4 give 2.5
  const auto test = one_weight_case([](int micro, int) { return micro + 1.0; }, 4, 2.5);
  for (const std::string& strategy : strategy_names()) {
    for (int world : {1, 2}) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

TEST(GradientCases, UsedInOneMicroBatchOnly) {  // 6 in the second of three gives 2
  const auto test = one_weight_case([](int micro, int) { return micro == 1 ? 6.0 : NAN; }, 3, 2.0);
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(test, strategy, 2), "");
}

TEST(GradientCases, ClippedByTheGlobalNorm) {  // (3, 4) on two ranks' shards becomes (0.6, 0.8)
  class TwoWeights : public Module {
   public:
    TwoWeights() { w_ = &add_parameter("w", {2}, Init::constant(0)); }
    std::string_view class_name() const override { return "TwoWeights"; }

   protected:
    at::Tensor forward(const Tensors& inputs) override { return (w_->tracked() * inputs[0]).sum(); }

   private:
    Parameter* w_;
  };
  StrategyCase test = one_weight_case([](int, int) { return 0.0; }, 1, 0);
  test.build = [] { return std::make_unique<Model>("two", std::make_unique<TwoWeights>()); };
  test.forward = [](Model& model, int, int, int) {
    return std::vector<at::Tensor>{model(at::tensor({3.0f, 4.0f}))};
  };
  test.max_norm = 1;
  test.after_step = [](const StrategyCase::Seen& seen) {
    SHARDBENCH_CHECK_EQ(seen.gradient_norm, 5.0);
    for (const OwnedPiece& piece : seen.strategy.owned().pieces) {
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const double expected = piece.begin + i == 0 ? 0.6 : 0.8;
        SHARDBENCH_CHECK(std::abs(-piece.value[i] - expected) < 1e-6, "{} at {}", -piece.value[i],
                         piece.begin + i);
      }
    }
  };
  for (const std::string& strategy : strategy_names()) {
    for (int world : {1, 2, 4}) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

TEST(GradientCases, AccumulationAndClippingKeepTheBits) {
  StrategyCase test = net_case(1);
  test.accumulation = 4;
  test.max_norm = 0.05;
  for (const std::string& strategy : strategy_names()) {
    for (int world : {1, 2, 3}) EXPECT_EQ(run_case(test, strategy, world), "");
  }
  test.optimizer.kind = train::OptimizerKind::kSgd;
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(test, strategy, 2), "");
}

TEST(GradientCases, UnitsAreGatheredTwicePerStep) {
  StrategyCase test = net_case(1);
  test.after_step = [](const StrategyCase::Seen& seen) {
    int gathers = 0;
    for (const comm::CallRecord& call : seen.comm.calls()) {
      gathers += call.label == "a" && (call.kind == comm::CollectiveKind::kAllGather ||
                                       call.kind == comm::CollectiveKind::kBroadcast);
    }
    // fsdp: one all-gather in forward and one in backward; zero3: one broadcast per owner.
    const bool fsdp = seen.comm.calls().size() > 0 && [&] {
      for (const comm::CallRecord& call : seen.comm.calls()) {
        if (call.kind == comm::CollectiveKind::kAllGather) return true;
      }
      return false;
    }();
    SHARDBENCH_CHECK(fsdp ? gathers == 2 : gathers % 2 == 0 && gathers > 0, "{} gathers", gathers);
  };
  for (const char* strategy : {"zero3", "fsdp"}) EXPECT_EQ(run_case(test, strategy, 2), "");
}

TEST(GradientCases, StaleGraphIsRefused) {
  StrategyCase test = net_case(1);
  auto kept = std::make_shared<at::Tensor>();
  test.forward = [kept](Model& model, int step, int micro, int rank) {
    const at::Tensor loss = model(fixed({4, 6}, step, micro, rank));
    if (step == 0) {
      *kept = model(fixed({4, 6}, 77));
      return std::vector<at::Tensor>{loss};
    }
    return std::vector<at::Tensor>{*kept};
  };
  const std::string failure = run_case(test, "ddp", 2);
  EXPECT_NE(failure.find("has changed since this graph's forward"), std::string::npos) << failure;
}

TEST(GradientCases, SecondBackwardThroughOneGraphIsRefused) {
  StrategyCase test = net_case(1);
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor loss = model(fixed({4, 6}, step, micro, rank));
    loss.backward({}, /*retain_graph=*/true);
    return std::vector<at::Tensor>{loss};
  };
  const std::string failure = run_case(test, "ddp", 2);
  EXPECT_NE(failure.find("second time"), std::string::npos) << failure;
}

TEST(GradientCases, OverwritingWhatAutogradSavedIsRefused) {
  class Residual : public Module {
   public:
    Residual() : fc_(&add_child<Linear>("fc", 6, 6)) {}
    std::string_view class_name() const override { return "Residual"; }

   protected:
    at::Tensor forward(const Tensors& inputs) override {
      // relu saves its output, residual_add writes over it.
      return functional::residual_add(inputs[0], at::relu((*fc_)(inputs[0]))).square().mean();
    }

   private:
    Module* fc_;
  };
  StrategyCase test = net_case(1);
  test.build = [] { return std::make_unique<Model>("r", std::make_unique<Residual>()); };
  const std::string failure = run_case(test, "ddp", 1);
  EXPECT_NE(failure.find("modified by an inplace operation"), std::string::npos) << failure;
}

TEST(GradientCases, DroppedForwardsDoNotHoldGradientsBack) {
  StrategyCase test = net_case(1);
  test.accumulation = 2;
  test.forward = [](Model& model, int step, int micro, int rank) {
    if (micro == 1) return std::vector<at::Tensor>{model(fixed({4, 6}, step, micro, rank))};
    const at::Tensor loss = model(fixed({4, 6}, step, micro, rank));
    loss.backward(at::full_like(loss, 0.5));
    model(fixed({2, 6}, 99));  // with gradients on, and never used
    return std::vector<at::Tensor>{};
  };
  for (const std::string& strategy : strategy_names()) EXPECT_EQ(run_case(test, strategy, 2), "");
}

TEST(GradientCases, ReshardedParameterIsANamedError) {
  StrategyCase test = net_case(1);
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor loss = model(fixed({4, 6}, step, micro, rank));
    model.parameter("a.weight").tensor();
    return std::vector<at::Tensor>{loss};
  };
  const std::string failure = run_case(test, "fsdp", 2);
  EXPECT_NE(failure.find("a.weight"), std::string::npos) << failure;
  EXPECT_NE(failure.find("resharded"), std::string::npos) << failure;
}

/// A root with two heads of its own around one inner unit.
class TwoHeads : public Module {
 public:
  TwoHeads() {
    a_ = &add_parameter("head_a", {6, 6}, Init::normal(0.3));
    b_ = &add_parameter("head_b", {6, 6}, Init::normal(0.3));
    body_ = &add_child<Linear>("body", 6, 6);
  }
  std::string_view class_name() const override { return "TwoHeads"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    const at::Tensor x = (*body_)(inputs[0]);
    at::Tensor loss = at::mm(x, a_->tracked()).square().mean();
    if (inputs.size() > 1) loss = loss + at::mm(x, b_->tracked()).square().mean();
    return loss;
  }

 private:
  Parameter* a_;
  Parameter* b_;
  Module* body_;
};

// The root is complete before the inner unit's backward on rank 0 and only after it on the others:
// its reduction must come at the same place on all of them.
TEST(GradientCases, OuterUnitOfWhichRanksUseDifferentParts) {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("heads", std::make_unique<TwoHeads>()); };
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor x = fixed({4, 6}, step, micro, rank);
    return std::vector<at::Tensor>{rank == 0 ? model(x, x) : model(x)};
  };
  for (const std::string& strategy : strategy_names()) {
    for (int world : {1, 2, 3}) EXPECT_EQ(run_case(test, strategy, world), "");
  }
}

}  // namespace
}  // namespace shardbench::testing
