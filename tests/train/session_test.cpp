// The step loop that programs use: the same bits as the calls it stands for.

#include "common/train/session.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/models/build.h"
#include "common/optim/norm.h"
#include "common/train/digest.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

using ::testing::HasSubstr;

at::Tensor tokens(int step, int micro, int rank) {
  return at::arange(12, at::kLong)
      .mul(step + 2)
      .add(3 * micro + 7 * rank)
      .remainder(256)
      .view({2, 6});
}

std::uint64_t digest_of(const Owned& owned) {
  std::uint64_t sum = 0;
  for (const OwnedPiece& piece : owned.pieces)
    sum += train::digest(piece.value, piece.begin, piece.count);
  return sum;
}

/// The steps of README.md's long form, one call after the other.
std::uint64_t by_hand(const std::string& name, comm::Communicator& ranks,
                      const train::SessionOptions& options) {
  const auto model = models::build(models::preset("mlp"));
  const auto registry = all_strategies();
  const auto strategy = registry.find(name).make();
  strategy->attach({model.get(), &ranks, options.strategy, options.seed, {}});
  const auto optimizer = optim::make_optimizer(options.optimizer, strategy->owned());
  for (int step = 0; step < 3; ++step) {
    strategy->begin_step();
    for (int micro = 0; micro < 2; ++micro) {
      strategy->begin_micro_batch(micro, 2);
      const at::Tensor x = tokens(step, micro, ranks.rank());
      const at::Tensor loss = (*model)(x, x);
      loss.backward(at::full_like(loss, 0.5));
    }
    strategy->finish_gradients();
    const double norm = train::gradient_norm(*strategy, ranks);
    optimizer->set_lr(train::learning_rate(options.optimizer, step));
    optimizer->step(strategy->owned(), strategy->used(),
                    optim::clip_coefficient(norm, options.max_norm));
    strategy->after_optimizer();
    ranks.quiesce();
  }
  const std::uint64_t result = digest_of(strategy->owned());
  model->detach();
  return result;
}

std::string run(const std::string& name, comm::Communicator& ranks) {
  at::set_num_threads(1);
  train::SessionOptions options;
  options.max_norm = 0.5;
  options.optimizer.lr_warmup = 2;
  const auto model = models::build(models::preset("mlp"));
  std::uint64_t own = 0;
  train::StepResult last;
  {
    const auto registry = all_strategies();
    train::Session session(*model, registry.find(name).make(), ranks, options);
    const auto loss = [&](int step, int micro) {
      const at::Tensor x = tokens(step, micro, ranks.rank());
      return (*model)(x, x);
    };
    double first = 0;
    for (int step = 0; step < 3; ++step) {
      last = session.step([&](int micro) { return loss(step, micro); }, 2);
      if (step == 0) first = last.loss;
    }
    own = digest_of(session.strategy().owned());
    SHARDBENCH_CHECK_EQ(session.steps(), 3);
    SHARDBENCH_CHECK(last.loss < first, "loss {} after {}", last.loss, first);
    SHARDBENCH_CHECK(last.gradient_norm > 0, "no gradient norm");
    const double after = session.evaluate([&](int micro) { return loss(2, micro); }, 2);
    SHARDBENCH_CHECK(after < last.loss, "evaluated {} after {}", after, last.loss);
    SHARDBENCH_CHECK_EQ(digest_of(session.strategy().owned()), own);
    std::uint64_t whole = 0;
    model->read_parameters([&](const Parameter& p, const at::Tensor& full) {
      whole += train::digest(full.const_data_ptr<float>(), 0, p.numel());
    });
    const std::string shared = fmt::format("{:x}", whole);
    SHARDBENCH_CHECK_EQ(own, by_hand(name, ranks, options));
    return fmt::format("{} {:.17g} {:.17g} {:.17g}", shared, last.loss, last.gradient_norm, after);
  }
}

TEST(Session, EqualsTheCallsItStandsForUnderEveryStrategy) {
  const train::Registry registry = all_strategies();
  std::map<train::AccumulationOrder, std::string> by_order;
  for (const std::string& name : strategy_names()) {
    const auto job = comm::Job::create({.world_size = 2, .timeout = std::chrono::seconds(60)});
    const auto outcome =
        comm::run_forked(job, [&](int rank) { return run(name, *comm::make_shm(job, rank)); });
    ASSERT_TRUE(outcome.ok) << name << ": "
                            << (outcome.failure ? outcome.failure->message : "no result");
    EXPECT_EQ(outcome.results[0], outcome.results[1]) << name;
    const train::AccumulationOrder order = registry.find(name).order;
    std::string& expected = by_order[order];
    if (expected.empty()) expected = outcome.results[0];
    EXPECT_EQ(outcome.results[0], expected) << name;
  }
}

TEST(Session, RefusesWhatMakesNoSense) {
  const auto model = models::build(models::preset("mlp"));
  const auto ranks = comm::make_local();
  const auto registry = all_strategies();
  const auto message = [&](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const auto make = [&](train::SessionOptions options) {
    train::Session session(*model, registry.find("ddp").make(), *ranks, options);
  };
  train::SessionOptions options;
  options.max_norm = -1;
  EXPECT_THAT(message([&] { make(options); }), HasSubstr("max_norm"));
  options = {};
  options.optimizer.lr = -1;
  EXPECT_THAT(message([&] { make(options); }), HasSubstr("lr"));
  train::Session session(*model, registry.find("ddp").make(), *ranks);
  EXPECT_THAT(message([&] { make({}); }), HasSubstr("is in another session"));
  EXPECT_THAT(message([&] { session.step([](int) { return at::zeros({2}); }); }),
              HasSubstr("must be one number"));
  EXPECT_THAT(message([&] { session.step([](int) { return at::zeros({}); }, 0); }),
              HasSubstr("at least one micro-batch"));
  EXPECT_EQ(session.steps(), 0);
}

TEST(Session, OptimizerInBackwardIsTheSameStep) {
  const train::Registry registry = all_strategies();
  const auto digest_after = [&](const std::string& name, bool in_backward,
                                comm::Communicator& ranks) {
    at::set_num_threads(1);
    const auto model = models::build(models::preset("mlp"));
    train::SessionOptions options;
    options.strategy.optimizer_in_backward = in_backward;
    options.optimizer.lr_warmup = 2;
    train::Session session(*model, registry.find(name).make(), ranks, options);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = tokens(step, 0, ranks.rank());
      session.step([&](int) { return (*model)(x, x); });
    }
    return digest_of(session.strategy().owned());
  };
  for (const char* name : {"zero2", "zero3", "fsdp"}) {
    const auto job = comm::Job::create({.world_size = 2, .timeout = std::chrono::seconds(60)});
    const auto outcome = comm::run_forked(job, [&](int rank) -> std::string {
      const auto ranks = comm::make_shm(job, rank);
      const std::uint64_t after = digest_after(name, false, *ranks);
      SHARDBENCH_CHECK_EQ(digest_after(name, true, *ranks), after);
      return "same";
    });
    EXPECT_TRUE(outcome.ok) << name << ": "
                            << (outcome.failure ? outcome.failure->message : "no result");
  }
}

TEST(Session, OptimizerInBackwardNeedsWhatItSteps) {
  const auto model = models::build(models::preset("mlp"));
  const auto ranks = comm::make_local();
  const auto refusal = [&](const char* strategy, double max_norm, int micro_batches) {
    train::SessionOptions options;
    options.strategy.optimizer_in_backward = true;
    options.max_norm = max_norm;
    try {
      train::Session session(*model, all_strategies().find(strategy).make(), *ranks, options);
      const at::Tensor x = tokens(0, 0, 0);
      session.step([&](int) { return (*model)(x, x); }, micro_batches);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("ddp", 0, 1), HasSubstr("zero2, zero3 or fsdp"));
  EXPECT_THAT(refusal("fsdp", 1, 1), HasSubstr("--max-norm"));
  EXPECT_THAT(refusal("fsdp", 0, 2), HasSubstr("nearest: 1"));
  EXPECT_EQ(refusal("fsdp", 0, 1), "");
}

TEST(Session, LearningRateCanBeChanged) {
  const auto model = models::build(models::preset("mlp"));
  const auto ranks = comm::make_local();
  train::Session session(*model, all_strategies().find("fsdp").make(), *ranks);
  session.set_lr(0.25);
  const at::Tensor x = tokens(0, 0, 0);
  session.step([&](int) { return (*model)(x, x); });
  EXPECT_EQ(session.optimizer().lr(), 0.25);
}

}  // namespace
}  // namespace shardbench::testing
