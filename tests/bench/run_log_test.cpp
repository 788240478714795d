#include "bench/cli/run_log.h"

#include <gtest/gtest.h>

#include "tests/bench/fake_engine.h"

namespace shardbench::cli {
namespace {

train::StrategyRun fake_run() {
  bench::Request request = bench::small_request();
  request.base.warmup = 2;
  request.base.steps = 4;
  bench::FakeEngine fake;
  train::StrategyRun run = fake.engine().run(bench::config_for(request, "fsdp", 2), {});
  for (train::RankResult& rank : run.ranks) {
    rank.evaluation_steps = {1, 4, 6};
    rank.evaluation_losses = {9, 2.5, 2.25};
  }
  return run;
}

// 2 ranks x 4 x 8 = 64 tokens; steps of 900 ms (two), then 100 ms.
TEST(TrainingLog, LinesRatesAndEvaluations) {
  EXPECT_EQ(training_log(fake_run(), {3, 2.4}),
            "   step      loss  grad_norm        lr    tok/s      peak\n"
            "                                                    (MiB)\n"
            "      1    5.0000     2.0000     0.001       71     16.20\n"
            "      3    4.8000     2.0000     0.001      128     16.20\n"
            "      4  held out 2.5000 nats per token, bigram baseline 2.4000: not below\n"
            "      6    4.5000     2.0000     0.001      640     16.20\n"
            "      6  held out 2.2500 nats per token, bigram baseline 2.4000: below (all of the "
            "held-out part)\n");
}

TEST(TrainingLog, ShowsTheRateInForce) {
  train::StrategyRun run = fake_run();
  run.config.optimizer.lr = 0.5;
  run.config.optimizer.lr_warmup = 5;
  const std::string log = training_log(run, {1, std::nullopt});
  EXPECT_NE(log.find("      1    5.0000     2.0000       0.1 "), std::string::npos) << log;
  EXPECT_NE(log.find("      6    4.5000     2.0000       0.5 "), std::string::npos) << log;
}

TEST(TrainingLog, WithoutABaselineOnlyTheLoss) {
  const std::string log = training_log(fake_run(), {100, std::nullopt});
  EXPECT_NE(log.find("held out 2.2500 nats per token (all"), std::string::npos) << log;
  EXPECT_EQ(log.find("bigram"), std::string::npos);
}

}  // namespace
}  // namespace shardbench::cli
