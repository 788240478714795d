// What adapt accepts and refuses, what memory it leaves, and what it gives back.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/memory/tracker.h"
#include "common/train/session.h"
#include "tests/support/strategy_case.h"
#include "tests/torch_nn/net.h"

namespace shardbench::testing {
namespace {

using ::testing::HasSubstr;

template <typename F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

comm::JobOutcome on_ranks(int world_size,
                          const std::function<std::string(comm::Communicator&)>& body) {
  const auto job =
      comm::Job::create({.world_size = world_size, .timeout = std::chrono::seconds(60)});
  return comm::run_forked(job, [&](int rank) { return body(*comm::make_shm(job, rank)); });
}
std::string failure_of(const comm::JobOutcome& outcome) {
  return outcome.failure ? outcome.failure->message : "";
}

std::unique_ptr<train::Strategy> make(const std::string& strategy) {
  return all_strategies().find(strategy).make();
}

TEST(TorchNnAdapter, ParametersHaveTheNamesAndOrderOfTheTree) {
  Net net = make_net();
  const auto model = torch_nn::adapt(net, {.units = {"second", "first"}});
  std::vector<std::string> names;
  for (const Parameter* p : model->parameters()) names.push_back(p->name());
  EXPECT_EQ(names, (std::vector<std::string>{
                       "scale", "tokens.weight", "extra.weight", "extra.bias", "never.weight",
                       "never.bias", "first.norm.weight", "first.norm.bias", "first.in.weight",
                       "first.in.bias", "first.out.weight", "first.out.bias", "second.norm.weight",
                       "second.norm.bias", "second.in.weight", "second.in.bias",
                       "second.out.weight", "second.out.bias"}));
  EXPECT_FALSE(model->parameter("first.in.bias").requires_grad());
  EXPECT_TRUE(model->parameter("scale").requires_grad());
}

TEST(TorchNnAdapter, OldMemoryGoesWhenAStrategyIsAttached) {
  const auto outcome = on_ranks(2, [](comm::Communicator& ranks) {
    memory::install_allocator();
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::Linear(256, 64));
    const auto live = [] {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : memory::tracker().live()) sum += bytes;
      return sum;
    };
    const std::int64_t whole = 4 * (2 * 64 * 256 + 256 + 64);
    SHARDBENCH_CHECK_GE(live(), whole);
    const auto model = torch_nn::adapt(net, {.units = {"0", "1"}});
    const auto strategy = make("fsdp");
    strategy->attach({model.get(), &ranks, {}, 1, {}});
    const memory::CategoryBytes bytes = memory::tracker().live();
    const auto of = [&](memory::Category c) { return bytes[static_cast<std::size_t>(c)]; };
    SHARDBENCH_CHECK_EQ(of(memory::Category::kParam), whole / 2);
    SHARDBENCH_CHECK_EQ(of(memory::Category::kGrad), whole / 2);
    SHARDBENCH_CHECK_LE(live(), whole + 4096);  // weights and gradients of this rank, no more
    model->detach();
    return std::string("done");
  });
  EXPECT_EQ(failure_of(outcome), "");
}

TEST(TorchNnAdapter, UseOutsideItsUnitIsANamedError) {
  const auto outcome = on_ranks(2, [](comm::Communicator& ranks) {
    Net net = make_net();
    const auto model = torch_nn::adapt(net, {.units = {"first", "second"}});
    train::Session session(*model, make("fsdp"), ranks);
    const at::Tensor x = at::ones({1, 6});
    const std::string direct = message_of([&] { net->extra(x); });
    SHARDBENCH_CHECK(direct.find("extra.") != std::string::npos &&
                         direct.find("used while it is resharded") != std::string::npos,
                     "{}", direct);
    return std::string("done");
  });
  EXPECT_EQ(failure_of(outcome), "");
}

TEST(TorchNnAdapter, AUnitThatIsNotEnteredIsANamedError) {
  const auto outcome = on_ranks(2, [](comm::Communicator& ranks) {
    Net net = make_net();
    // `extra` is called as it is, not through call().
    const auto model = torch_nn::adapt(net, {.units = {"extra"}});
    train::Session session(*model, make("zero3"), ranks);
    net->with_extra = true;
    const std::string message = message_of([&] { (*model)(at::zeros({1, 2}, at::kLong)); });
    SHARDBENCH_CHECK(message.find("parameter extra.") != std::string::npos, "{}", message);
    return std::string("done");
  });
  EXPECT_EQ(failure_of(outcome), "");
}

TEST(TorchNnAdapter, GivenValuesThatDifferBetweenRanksAreRefused) {
  const auto body = [](train::InitMode init) {
    return [init](comm::Communicator& ranks) {
      torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()) + 1);
      torch::nn::Linear net(4, 4);
      const at::Tensor before = net->weight.detach().clone();
      const auto model = torch_nn::adapt(net);
      train::SessionOptions options;
      options.strategy.init = init;
      train::Session session(*model, make("fsdp"), ranks, options);
      torch_nn::give_back(*model);
      if (ranks.rank() == 0) SHARDBENCH_CHECK(net->weight.equal(before), "rank 0's are not kept");
      return fmt::format("{:.9g}", net->weight.sum().item<double>());
    };
  };
  EXPECT_THAT(failure_of(on_ranks(2, body(train::InitMode::kDeferred))),
              HasSubstr("the given values of weight differ between ranks"));
  const auto outcome = on_ranks(2, body(train::InitMode::kBroadcastTensor));
  ASSERT_EQ(failure_of(outcome), "");
  EXPECT_EQ(outcome.results[0], outcome.results[1]);
}

/// A Sequential that may stand inside another.
struct InnerImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(at::Tensor x) { return SequentialImpl::forward(std::move(x)); }
};
TORCH_MODULE(Inner);

TEST(TorchNnAdapter, ChildrenOfASequentialNeedNoCall) {
  const auto outcome = on_ranks(2, [](comm::Communicator& ranks) {
    torch::manual_seed(4);
    torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::ReLU(),
                              Inner(torch::nn::Linear(7, 7), torch::nn::Tanh()),
                              torch::nn::Linear(7, 2));
    const at::Tensor x = at::linspace(-1, 1, 15).view({3, 5});
    const at::Tensor before = net->forward(x).detach();
    const auto model = torch_nn::adapt(net, {.units = {"0", "2.0", "3"}});
    std::vector<std::string> entered;
    {
      train::SessionOptions options;
      options.on_position = [&](Phase phase, std::string_view unit) {
        if (phase == Phase::kForward) entered.emplace_back(unit);
      };
      train::Session session(*model, make("fsdp"), ranks, options);
      {
        const at::NoGradGuard no_grad;
        SHARDBENCH_CHECK((*model)(x).equal(before), "another output");
      }
      SHARDBENCH_CHECK(entered == (std::vector<std::string>{"0", "2.0", "3"}), "{} units entered",
                       entered.size());
      torch_nn::give_back(*model);
    }
    SHARDBENCH_CHECK(net->forward(x).equal(before), "another output afterwards");
    SHARDBENCH_CHECK(net->ptr(0)->as<torch::nn::LinearImpl>() != nullptr, "child 0 is replaced");
    const std::string again = message_of([&] { (*model)(x); });
    SHARDBENCH_CHECK(again.find("given back") != std::string::npos, "{}", again);
    return std::string("done");
  });
  EXPECT_EQ(failure_of(outcome), "");
}

TEST(TorchNnAdapter, BuffersAreTheModels) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  const auto model = torch_nn::adapt(net, {.units = {"1"}});
  std::vector<std::string> names;
  for (const ModuleBuffer* buffer : model->buffers()) names.push_back(buffer->name);
  EXPECT_EQ(names, (std::vector<std::string>{"1.running_mean", "1.running_var"}));
  const auto ranks = comm::make_local();
  train::Session session(*model, make("ddp"), *ranks);
  session.step([&](int) { return (*model)(at::randn({8, 3})).square().mean(); });
  const at::Tensor own = net->named_buffers()["1.running_mean"];
  EXPECT_TRUE(model->buffers()[0]->tensor.is_same(own));
  EXPECT_GT(own.abs().max().item<float>(), 0);
}

TEST(TorchNnAdapter, RefusalsNameThePlace) {
  const auto refuse = [](const auto& net, torch_nn::AdaptOptions options = {}) {
    return message_of([&] { torch_nn::adapt(net, options); });
  };
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  EXPECT_THAT(refuse(net, {.units = {"7"}}),
              HasSubstr("no submodule '7' to make a unit of; it has 0, 1"));
  EXPECT_THAT(refuse(net, {.units = {"0", "0"}}), HasSubstr("unit '0' is named twice"));
  torch::nn::Linear wide(2, 2);
  wide->to(at::kDouble);
  EXPECT_THAT(refuse(wide), HasSubstr("parameter weight is Double"));
  auto& second = *net->ptr(1)->as<torch::nn::LinearImpl>();
  second.weight.set_data(net->ptr(0)->as<torch::nn::LinearImpl>()->weight);
  EXPECT_THAT(refuse(net), HasSubstr("parameters 0.weight and 1.weight overlap in memory"));
  torch::nn::Linear plain(2, 2);
  const auto model = torch_nn::adapt(plain);
  EXPECT_THAT(refuse(plain), HasSubstr("adapted already"));
  EXPECT_THAT(message_of([&] {
                (*model)(at::ones({1, 2}), at::ones({1, 2}));
              }),
              HasSubstr("does not map 2 tensor(s) to one"));
}

TEST(TorchNnAdapter, LowerPrecisionIsRefusedByName) {
  torch::nn::Sequential mixed(torch::nn::Linear(2, 2),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
  mixed->ptr(0)->to(at::kBFloat16);  // and a norm in fp32 beside it
  EXPECT_THAT(message_of([&] { torch_nn::adapt(mixed); }),
              HasSubstr("parameter 0.weight is BFloat16; adapted modules train in fp32 only"));
  torch::nn::Linear net(2, 2);
  const auto model = torch_nn::adapt(net);
  const auto ranks = comm::make_local();
  train::SessionOptions options;
  options.strategy.compute_dtype = DType::kBFloat16;
  for (const char* strategy : {"ddp", "fsdp"}) {
    EXPECT_THAT(
        message_of([&] { train::Session session(*model, make(strategy), *ranks, options); }),
        HasSubstr("parameter weight stands for an fp32 tensor of a torch::nn module, which "
                  "cannot compute in bf16"));
  }
  // Gradients may travel narrow: what they are kept in is fp32.
  options.strategy = {};
  options.strategy.reduce_dtype = DType::kBFloat16;
  train::Session session(*model, make("fsdp"), *ranks, options);
  const auto loss = [&](int) { return (*model)(at::ones({3, 2})).square().mean(); };
  const double before = session.step(loss).loss;
  EXPECT_LT(session.step(loss).loss, before);
}

TEST(TorchNnAdapter, ASparseGradientIsRefusedByName) {
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  const auto model = torch_nn::adapt(net);
  const auto ranks = comm::make_local();
  train::Session session(*model, make("ddp"), *ranks);
  EXPECT_THAT(message_of([&] {
                session.step([&](int) { return (*model)(at::ones({2}, at::kLong)).sum(); });
              }),
              HasSubstr("the gradient of parameter weight is sparse"));
}

TEST(TorchNnAdapter, AStrategyMayBeAttachedOnceOnly) {
  torch::nn::Linear net(2, 2);
  const auto model = torch_nn::adapt(net);
  const auto ranks = comm::make_local();
  { train::Session first(*model, make("ddp"), *ranks); }
  EXPECT_THAT(message_of([&] { train::Session second(*model, make("ddp"), *ranks); }),
              HasSubstr("the given values of parameter weight were let go"));
}

TEST(TorchNnAdapter, AStaleGraphIsRefused) {
  torch::nn::Linear net(2, 2);
  const auto model = torch_nn::adapt(net);
  const auto ranks = comm::make_local();
  train::Session session(*model, make("ddp"), *ranks);
  const at::Tensor x = at::ones({1, 2}).requires_grad_(true);
  const at::Tensor old = (*model)(x).sum();
  session.step([&](int) { return (*model)(x).sum(); });
  EXPECT_THAT(message_of([&] { old.backward(); }), HasSubstr("modified by an inplace operation"));
}

}  // namespace
}  // namespace shardbench::testing
