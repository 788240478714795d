#include "bench/cli/run_log.h"

#include <gtest/gtest.h>

#include "tests/bench/fake_engine.h"

namespace shardbench::cli {
namespace {

train::RunConfig six_steps() {  // of 2 ranks x 4 x 8 = 64 tokens
  bench::Request request = bench::small_request();
  request.base.warmup = 2;
  request.base.steps = 4;
  return bench::config_for(request, "fsdp", 2);
}

train::StepRecord step_of(double loss, std::int64_t milliseconds) {
  train::StepRecord record;
  record.loss = loss;
  record.gradient_norm = 2;
  record.step_ns = milliseconds * 1'000'000;
  return record;
}

TEST(TrainingLog, LinesRatesAndPeaks) {
  TrainingLog log(six_steps(), {3, 2.4});
  EXPECT_EQ(log.header(),
            "   step      loss  grad_norm        lr    tok/s      peak\n"
            "                                                    (MiB)\n");
  const std::int64_t peak = 16 << 20;
  EXPECT_EQ(log.step(1, step_of(5, 1000), peak),
            "      1    5.0000     2.0000     0.001       64     16.00\n");
  EXPECT_EQ(log.step(2, step_of(4.9, 900), 2 * peak), "");
  // 128 tokens in 1,000 ms; the highest peak so far stays.
  EXPECT_EQ(log.step(3, step_of(4.8, 100), peak),
            "      3    4.8000     2.0000     0.001      128     32.00\n");
  EXPECT_EQ(log.step(4, step_of(4.7, 100), peak), "");
  EXPECT_EQ(log.step(5, step_of(4.6, 100), peak), "");
  EXPECT_EQ(log.step(6, step_of(4.5, 100), peak),
            "      6    4.5000     2.0000     0.001      640     32.00\n");
}

TEST(TrainingLog, TheLastStepHasALineWhereverItFalls) {
  TrainingLog log(six_steps(), {100, std::nullopt});
  for (int step = 2; step < 6; ++step) EXPECT_EQ(log.step(step, step_of(4, 100), 1), "");
  EXPECT_NE(log.step(6, step_of(4, 100), 1), "");
}

TEST(TrainingLog, LearningRateIsThatOfTheStep) {
  train::RunConfig config = six_steps();
  config.optimizer.lr_warmup = 4;
  TrainingLog log(config, {1, std::nullopt});
  EXPECT_NE(log.step(1, step_of(4, 100), 1).find("0.00025"), std::string::npos);
}

TEST(TrainingLog, LossScaleAndSkippedSteps) {
  train::RunConfig config = six_steps();
  config.loss_scale = train::LossScale::parse("dynamic");
  TrainingLog log(config, {2, std::nullopt});
  EXPECT_EQ(log.header(),
            "   step      loss  grad_norm        lr    tok/s      peak  loss_scale\n"
            "                                                    (MiB)\n");
  train::StepRecord record = step_of(5, 1000);
  record.loss_scale = 65536;
  record.skipped = true;
  const std::string skipped = "  skipped: a gradient overflowed at loss scale 65536\n";
  EXPECT_EQ(log.step(1, record, 1 << 20),
            "      1" + skipped +
                "      1    5.0000     2.0000     0.001       64     1.000       65536\n");
  record.skipped = false;
  record.loss_scale = 32768;
  EXPECT_EQ(log.step(2, record, 1 << 20),
            "      2    5.0000     2.0000     0.001       64     1.000       32768\n");
  record.skipped = true;
  record.loss_scale = 65536;
  EXPECT_EQ(log.step(3, record, 1 << 20), "      3" + skipped);  // between lines, too
}

TEST(TrainingLog, Evaluations) {
  TrainingLog log(six_steps(), {3, 2.4});
  EXPECT_EQ(log.evaluation(4, 2.5, false),
            "      4  held out 2.5000 nats per token, bigram baseline 2.4000: not below\n");
  EXPECT_EQ(log.evaluation(6, 2.25, true),
            "      6  held out 2.2500 nats per token, bigram baseline 2.4000: below (all of the "
            "held-out part)\n");
  TrainingLog plain(six_steps(), {3, std::nullopt});
  EXPECT_EQ(plain.evaluation(6, 2.25, false), "      6  held out 2.2500 nats per token\n");
}

}  // namespace
}  // namespace shardbench::cli
