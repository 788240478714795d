#include "bench/compare/compare.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "bench/compare/screens.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

Comparison run(const Request& request, FakeEngine& fake, const Observer& observer = {}) {
  return compare(request, fake_registry(), fake.engine(), observer);
}

void fail(train::StrategyRun& run, comm::AbortRecord::Reason reason) {
  run.ranks.clear();
  run.failure.emplace();
  run.failure->rank = 1;
  run.failure->phase = Phase::kForward;
  run.failure->reason = reason;
  run.failure->message = "planted";
}

TEST(Compare, ReferenceFirstThenRoundRobin) {
  Request request = small_request();
  request.worlds = {1, 3};
  request.repetitions = 2;
  FakeEngine fake;
  const Comparison comparison = run(request, fake);
  EXPECT_EQ(fake.log,
            (std::vector<std::string>{"reference/1/ranks", "ddp/1", "zero3/1", "fsdp/1", "ddp/1",
                                      "zero3/1", "fsdp/1", "reference/3/ranks", "ddp/3", "zero3/3",
                                      "fsdp/3", "ddp/3", "zero3/3", "fsdp/3"}));
  EXPECT_EQ(static_cast<int>(fake.log.size()), runs_of(request, fake_registry()));
  ASSERT_EQ(comparison.blocks.size(), 2u);
  EXPECT_EQ(comparison.blocks[1].world_size, 3);
  EXPECT_EQ(comparison.blocks[1].rows[2].strategy(), "fsdp");
  EXPECT_EQ(comparison.blocks[1].rows[2].step.times.size(), 20u);
  EXPECT_EQ(exit_code(comparison), 0);
}

TEST(Compare, BaselineRowComesFirst) {
  Request request = small_request();
  request.strategies = {"fsdp", "zero3", "ddp"};
  FakeEngine fake;
  const Comparison comparison = run(request, fake);
  EXPECT_EQ(comparison.blocks[0].rows[0].strategy(), "ddp");
  EXPECT_EQ(comparison.blocks[0].rows[1].strategy(), "fsdp");
  EXPECT_EQ(baseline_of({"zero3", "fsdp"}), "zero3");
}

TEST(Compare, AccumulationNeedsAReferencePerOrderOfSums) {
  Request request = small_request();
  request.base.accumulation = 3;
  FakeEngine fake;
  run(request, fake);
  EXPECT_EQ(fake.log[0], "reference/2/micro");
  EXPECT_EQ(fake.log[1], "reference/2/ranks");
  request.strategies = {"fsdp", "zero3"};
  FakeEngine other;
  run(request, other);
  EXPECT_EQ(other.log.size(), 3u);
}

TEST(Compare, GlobalBatchIsSharedOut) {
  Request request = small_request();
  request.global_batch = 24;
  request.base.accumulation = 2;
  EXPECT_EQ(config_for(request, "ddp", 3).batch, 4);
  EXPECT_EQ(config_for(request, "ddp", 4).batch, 3);
  try {
    config_for(request, "ddp", 5);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "--global-batch 24: not divisible by 10 (5 ranks x 2 micro-batches); nearest: 20 "
                 "or 30");
  }
  request.global_batch = 3;
  try {
    config_for(request, "ddp", 4);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("nearest: 8"), std::string::npos) << error.what();
  }
}

TEST(Compare, NothingRunsWhenOneJobCannot) {
  Request request = small_request();
  request.global_batch = 8;
  request.worlds = {2, 3};
  FakeEngine fake;
  EXPECT_THROW(run(request, fake), UserError);
  EXPECT_TRUE(fake.log.empty());
}

TEST(Compare, AFailedStrategyIsNotRunAgainAndTheOthersAre) {
  Request request = small_request();
  request.repetitions = 3;
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& r) {
    if (r.config.strategy == "zero3") fail(r, comm::AbortRecord::Reason::kThrew);
  };
  const Comparison comparison = run(request, fake);
  EXPECT_EQ(std::count(fake.log.begin(), fake.log.end(), "zero3/2"), 1);
  EXPECT_EQ(std::count(fake.log.begin(), fake.log.end(), "fsdp/2"), 3);
  const Row& row = comparison.blocks[0].rows[1];
  EXPECT_EQ(row.state, Row::State::kFailed);
  EXPECT_EQ(row.reason, "rank 1 failed in forward: planted");
  EXPECT_EQ(exit_code(comparison), 1);
}

TEST(Compare, ExitCodes) {
  using Reason = comm::AbortRecord::Reason;
  for (const auto& [reason, code] :
       {std::pair{Reason::kThrew, 1}, {Reason::kLost, 3}, {Reason::kTimeout, 3}}) {
    FakeEngine fake;
    fake.spoil = [reason = reason](train::StrategyRun& r) {
      if (r.config.strategy == "fsdp") fail(r, reason);
    };
    EXPECT_EQ(exit_code(run(small_request(), fake)), code);
  }
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& r) {
    parity.ok = r.config.strategy != "ddp";
  };
  EXPECT_EQ(exit_code(run(small_request(), fake)), 1);
}

TEST(Compare, ASignalEndsItAndKeepsWhatWasMeasured) {
  Request request = small_request();
  request.worlds = {2, 3};
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& r) {
    if (r.config.strategy != "zero3") return;
    r.ranks.clear();
    r.signal = SIGINT;
  };
  const Comparison comparison = run(request, fake);
  EXPECT_EQ(fake.log.back(), "zero3/2");
  ASSERT_EQ(comparison.blocks.size(), 1u);
  EXPECT_TRUE(comparison.blocks[0].rows[0].right());
  EXPECT_EQ(comparison.blocks[0].rows[2].state, Row::State::kFailed);
  EXPECT_EQ(exit_code(comparison), 130);
}

TEST(Compare, WithoutAReferenceNothingIsTimed) {
  FakeEngine fake;
  fake.spoil_reference = [](train::ReferenceRun& r) {
    r.result.reset();
    r.failure.emplace();
    r.failure->rank = 0;
    r.failure->message = "out of memory";
  };
  const Comparison comparison = run(small_request(), fake);
  EXPECT_EQ(fake.log.size(), 1u);
  EXPECT_EQ(comparison.blocks[0].rows[0].reason,
            "no reference: rank 0 failed in init: out of memory");
  EXPECT_EQ(exit_code(comparison), 1);
}

TEST(Compare, FaultsArePlantedInStrategiesOnly) {
  Request request = small_request();
  request.base.inject.emplace();
  FakeEngine fake;
  Engine engine = fake.engine();
  const auto reference = engine.reference;
  engine.reference = [&](const train::RunConfig& config, train::AccumulationOrder order,
                         const train::Progress& progress) {
    EXPECT_FALSE(config.inject.has_value());
    return reference(config, order, progress);
  };
  const auto strategy = engine.run;
  engine.run = [&](const train::RunConfig& config, const train::Progress& progress,
                   const train::RankObserver& observer) {
    EXPECT_TRUE(config.inject.has_value());
    return strategy(config, progress, observer);
  };
  compare(request, fake_registry(), engine);
}

TEST(Compare, ObserverSeesEveryRun) {
  FakeEngine fake;
  std::vector<std::string> seen;
  Observer observer;
  observer.begin = [&](const std::string& name, int index, int all) {
    EXPECT_EQ(all, 4);
    seen.push_back(std::to_string(index) + " " + name);
  };
  run(small_request(), fake, observer);
  EXPECT_EQ(seen, (std::vector<std::string>{"1 reference W=2", "2 ddp W=2", "3 zero3 W=2",
                                            "4 fsdp W=2"}));
}

TEST(OversizedUnit, WarnsOnlyAboutMoreThanHalf) {
  Request request = small_request();
  const sharding::ModelShape model = models::shape_of(request.base.model);
  EXPECT_EQ(oversized_unit(request.base, model), "");
  request.base.options.units = sharding::UnitPolicy::parse("whole");
  EXPECT_NE(oversized_unit(request.base, model).find("holds 100 % of the weights"),
            std::string::npos);
}

TEST(Limit, IsTheSumOfThePartsThatWereFastest) {
  FakeEngine fake;
  fake.limits = {{20'000'000, 40'000'000, 2.0, 8.0}, {25'000'000, 30'000'000, 1.0, 10.0}};
  Request request = small_request();
  request.limit = true;
  request.repetitions = 2;
  request.base.accumulation = 3;
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  EXPECT_EQ(std::count(fake.log.begin(), fake.log.end(), "limit/2/batch 4"), 2);
  EXPECT_EQ(runs_of(request, fake_registry()), static_cast<int>(fake.log.size()));
  for (const Row& row : comparison.blocks[0].rows) {
    ASSERT_TRUE(row.limit.has_value());
    const double elements = static_cast<double>(row.fullest_rank().formula.optimizer) / 8;
    EXPECT_GT(elements, 0);
    EXPECT_DOUBLE_EQ(row.limit_ns(), 3 * (20e6 + 30e6) + elements * 1.0 + row.sent().mean / 10.0);
  }
  EXPECT_LT(comparison.blocks[0].rows.back().limit_ns(), 200e6);
  const std::string text = render_table(TableKind::kTime, comparison);
  EXPECT_NE(text.find("parts alone"), std::string::npos) << text;
}

TEST(Limit, IsNotThereUnlessAskedForOrWhenItFailed) {
  FakeEngine fake;
  fake.limits = {{1, 1, 1.0, 1.0}};
  Comparison comparison = compare(small_request(), fake_registry(), fake.engine());
  EXPECT_FALSE(comparison.blocks[0].rows[0].limit.has_value());
  EXPECT_EQ(render_table(TableKind::kTime, comparison).find("parts alone"), std::string::npos);
  fake.limits.clear();
  Request request = small_request();
  request.limit = true;
  comparison = compare(request, fake_registry(), fake.engine());
  EXPECT_FALSE(comparison.blocks[0].rows[0].limit.has_value());
  EXPECT_EQ(exit_code(comparison), 0);
}

}  // namespace
}  // namespace shardbench::bench
