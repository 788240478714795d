#include "bench/compare/row.h"

#include "bench/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/compare/request.h"
#include "bench/compare/traffic.h"
#include "common/core/error.h"
#include "common/models/config.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using sharding::FormulaKind;

train::StrategyRun fake_run(const std::string& strategy, int world_size, FakeEngine fake = {}) {
  const Request request = small_request();
  return fake.engine().run(config_for(request, strategy, world_size), {}, {});
}

Row row_of(const train::StrategyRun& run, FormulaKind kind,
           const train::ReferenceResult& reference = {}) {
  train::Parity verdict;
  verdict.ok = verdict.bit_equal = true;
  return make_row({run}, {verdict}, reference, kind, models::shape_of(run.config.model));
}

// The rate is that of a step, however many steps were measured.
TEST(Row, RateIsTheSameAfterTenAndAHundredSteps) {
  Request request = small_request();
  for (int steps : {10, 100}) {
    request.base.steps = steps;
    FakeEngine fake;
    const train::StrategyRun run = fake.engine().run(config_for(request, "ddp", 4), {}, {});
    const Row row = row_of(run, FormulaKind::kDdp);
    EXPECT_EQ(row.step.times.size(), static_cast<std::size_t>(steps));
    // 4 ranks x 4 sequences x 8 tokens in 100 ms.
    EXPECT_NEAR(row.tokens_per_s, 1280, 1280 * 0.02);
  }
}

TEST(Row, WarmUpIsNotMeasured) {
  FakeEngine fake;
  fake.warmup_ns = 5'000'000'000;
  fake.step_ns = 50'000'000;
  const Row row = row_of(fake_run("fsdp", 2, fake), FormulaKind::kFsdp);
  EXPECT_EQ(row.step.median, 50e6);
  EXPECT_EQ(row.step.max, 50e6);
  EXPECT_EQ(row.step.times.size(), 10u);
  EXPECT_EQ(row.losses.size(), 12u);  // losses of the warm-up count
  EXPECT_EQ(row.forward_ns, 15e6);
}

TEST(Row, StepTimeIsThatOfTheSlowestRankInEachStep) {
  train::StrategyRun run = fake_run("ddp", 2);
  run.ranks[0].steps[2].step_ns = 200'000'000;  // first measured step: rank 0 is slow
  run.ranks[1].steps[3].step_ns = 300'000'000;  // second: rank 1
  run.ranks[1].steps[3].forward_ns = 77;
  const Row row = row_of(run, FormulaKind::kDdp);
  EXPECT_EQ(row.step.times[0], 200'000'000);
  EXPECT_EQ(row.step.times[1], 300'000'000);
  EXPECT_EQ(row.step.times[2], 100'000'000);
  EXPECT_EQ(row.step.median, 100e6);
}

TEST(Row, RepetitionsArePooled) {
  FakeEngine slow;
  slow.step_ns = 300'000'000;
  const std::vector<train::StrategyRun> runs = {fake_run("ddp", 2), fake_run("ddp", 2, slow)};
  train::Parity verdict;
  verdict.ok = true;
  const Row row = make_row(runs, {verdict, verdict}, {}, FormulaKind::kDdp,
                           models::shape_of(runs[0].config.model));
  EXPECT_EQ(row.repetitions, 2);
  EXPECT_EQ(row.step.times.size(), 20u);
  EXPECT_EQ(row.step.median, 200e6);
}

TEST(Row, RightOnlyIfEveryRepetitionIs) {
  const train::StrategyRun run = fake_run("ddp", 2);
  train::Parity right;
  right.ok = true;
  train::Parity wrong;
  wrong.first_tensor = "wte.weight";
  wrong.detail = "its values differ";
  const Row row = make_row({run, run}, {wrong, right}, {}, FormulaKind::kDdp,
                           models::shape_of(run.config.model));
  EXPECT_EQ(row.state, Row::State::kWrong);
  EXPECT_EQ(row.parity.first_tensor, "wte.weight");
  EXPECT_EQ(row.reason, "its values differ");
  EXPECT_EQ(exit_code(row), 1);
}

TEST(Row, MissingStepsOrRanksAreAnError) {
  train::StrategyRun run = fake_run("ddp", 2);
  run.ranks[1].steps.pop_back();
  EXPECT_THROW(row_of(run, FormulaKind::kDdp), InvariantError);
  run = fake_run("ddp", 2);
  run.ranks.pop_back();
  EXPECT_THROW(row_of(run, FormulaKind::kDdp), InvariantError);
}

class RowTraffic : public ::testing::TestWithParam<int> {};

TEST_P(RowTraffic, CountedEqualsFormulaForEveryStrategy) {
  const train::Registry registry = fake_registry();
  for (const train::StrategyEntry& entry : registry.entries()) {
    const Row row = row_of(fake_run(entry.name, GetParam()), entry.formula);
    EXPECT_EQ(row.traffic_error, "") << entry.name;
    std::int64_t sent = 0;
    for (const RankFigures& rank : row.ranks) {
      EXPECT_EQ(rank.sent_bytes, rank.formula_sent_bytes);
      EXPECT_EQ(rank.persistent_bytes, rank.formula.persistent() + rank.formula.padding);
      sent += rank.sent_bytes;
    }
    EXPECT_EQ(sent > 0, GetParam() > 1) << entry.name;
    EXPECT_EQ(exit_code(row), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(WorldSizes, RowTraffic, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST(Row, OneByteOffIsNamedAndFails) {
  train::StrategyRun run = fake_run("fsdp", 3);
  ASSERT_FALSE(run.ranks[2].traffic.empty());
  run.ranks[2].traffic[0].algo_bytes += 1;
  const Row row = row_of(run, FormulaKind::kFsdp);
  EXPECT_EQ(row.traffic_error.rfind("rank 2 forward all_gather: calls say ", 0), 0u)
      << row.traffic_error;
  EXPECT_EQ(exit_code(row), 1);
}

TEST(Row, WireBytesThatDifferFailAndUncountedOnesDoNot) {
  train::StrategyRun run = fake_run("ddp", 2);
  run.ranks[0].traffic[0].wire.sent -= 4;
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error, "");
  for (train::RankResult& rank : run.ranks) {
    for (comm::TrafficEntry& entry : rank.traffic) entry.wire = {-1, -1, -1};
  }
  EXPECT_EQ(row_of(run, FormulaKind::kDdp).traffic_error, "");
}

// A rank that hands on what its host's ranks all get sends more, and another one less.
TEST(Row, WireBytesMayBeSharedDifferentlyByRanks) {
  train::StrategyRun run = fake_run("ddp", 2);
  run.ranks[0].traffic[0].wire.sent += 64;
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error, "");
  run.ranks[1].traffic[0].wire.sent -= 64;
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error, "");
  run.config.backend = "mpi";
  EXPECT_EQ(row_of(run, FormulaKind::kDdp).traffic_error, "");
  run.ranks[0].traffic[0].algo_bytes += 64;
  run.ranks[1].traffic[0].algo_bytes -= 64;
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error, "");
}

TEST(Row, CallsThatTheFormulaDoesNotKnowAndMissingOnesAreCaught) {
  train::StrategyRun run = fake_run("ddp", 2);
  comm::TrafficEntry extra;
  extra.phase = Phase::kOptimizer;
  extra.kind = comm::CollectiveKind::kBroadcast;
  extra.calls = 1;
  extra.algo_bytes = extra.wire.sent = 8;
  run.ranks[1].traffic.push_back(extra);
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error.find("rank 1 optimizer broadcast"),
            std::string::npos);
  run = fake_run("ddp", 2);
  run.ranks[0].traffic.clear();
  EXPECT_NE(row_of(run, FormulaKind::kDdp).traffic_error.find("rank 0 backward all_reduce"),
            std::string::npos);
}

TEST(Row, MetricsAreOutsideTheFormulasAndTheSum) {
  train::StrategyRun run = fake_run("ddp", 2);
  const std::int64_t before = row_of(run, FormulaKind::kDdp).ranks[0].sent_bytes;
  comm::TrafficEntry loss;
  loss.phase = Phase::kMetrics;
  loss.kind = comm::CollectiveKind::kAllReduce;
  loss.calls = 1;
  loss.algo_bytes = loss.wire.sent = 16;
  run.ranks[0].traffic.push_back(loss);
  const Row row = row_of(run, FormulaKind::kDdp);
  EXPECT_EQ(row.traffic_error, "");
  EXPECT_EQ(row.ranks[0].sent_bytes, before);
  bool seen = false;
  for (const TrafficRow& entry : row.traffic) {
    if (entry.phase != Phase::kMetrics) continue;
    seen = true;
    EXPECT_FALSE(entry.formula_bytes.has_value());
  }
  EXPECT_TRUE(seen);
}

TEST(Row, UnsteadyTrafficFails) {
  train::StrategyRun run = fake_run("zero3", 2);
  run.ranks[1].traffic_steady = false;
  EXPECT_EQ(row_of(run, FormulaKind::kZero3).traffic_error,
            "rank 1: measured steps sent different amounts");
}

TEST(Row, BytesOfEveryRepetitionAreCompared) {
  const train::StrategyRun good = fake_run("fsdp", 2);
  train::StrategyRun bad = good;
  bad.ranks[1].traffic[0].algo_bytes += 4;
  train::Parity verdict;
  verdict.ok = true;
  const sharding::ModelShape model = models::shape_of(good.config.model);
  for (const auto& [runs, where] :
       {std::pair{std::vector{bad, good, good}, "repetition 1, rank 1 forward all_gather"},
        {std::vector{good, bad, good}, "repetition 2, rank 1 forward all_gather"},
        {std::vector{good, good, bad}, "repetition 3, rank 1 forward all_gather"}}) {
    const Row row = make_row(runs, {verdict, verdict, verdict}, {}, FormulaKind::kFsdp, model);
    EXPECT_EQ(row.traffic_error.rfind(where, 0), 0u) << row.traffic_error;
    EXPECT_EQ(exit_code(row), 1);
  }
}

TEST(Row, CallsAreAddedUpByUnitAndMeanOverRanks) {
  train::StrategyRun run = fake_run("fsdp", 2);
  for (comm::CallRecord& call : run.ranks[1].calls) call.algo_bytes += 2;
  const Row row = row_of(run, FormulaKind::kFsdp);
  // Gather twice and scatter, for the root and two blocks.
  ASSERT_EQ(row.call_totals.size(), 9u);
  EXPECT_EQ(row.call_totals[0].label, "root");
  EXPECT_EQ(row.call_totals[0].calls, 1);
  EXPECT_EQ(row.call_totals[0].algo_bytes, run.ranks[0].calls[0].algo_bytes + 1);
  EXPECT_NEAR(row.kind_ns(Phase::kBackward, comm::CollectiveKind::kReduceScatter), 1e6, 3);
  EXPECT_EQ(row.traffic[0].dtype, "fp32");
}

TEST(Row, TheFirstLossThatIsNoNumber) {
  train::StrategyRun run = fake_run("ddp", 2);
  EXPECT_EQ(row_of(run, FormulaKind::kDdp).first_bad_loss(), 0);
  run.ranks[0].steps[7].loss = std::nan("");
  run.ranks[0].steps[9].loss = std::nan("");
  EXPECT_EQ(row_of(run, FormulaKind::kDdp).first_bad_loss(), 8);
}

TEST(Row, WhoCutsWhat) {
  Row row;
  const auto cuts = [&](FormulaKind kind) {
    row.formula = kind;
    return std::vector<bool>{row.shards_anything(), row.shards_gradients(), row.shards_parameters(),
                             row.has_owners()};
  };
  EXPECT_EQ(cuts(FormulaKind::kSingle), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(cuts(FormulaKind::kDdp), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(cuts(FormulaKind::kZero1), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(cuts(FormulaKind::kZero2), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(cuts(FormulaKind::kZero3), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(cuts(FormulaKind::kFsdp), (std::vector<bool>{true, true, true, false}));
}

TEST(Row, OverlapIsWhatComputeHides) {
  train::StrategyRun run = fake_run("fsdp", 2);
  for (train::StepRecord& step : run.ranks[0].steps) {
    step.comm_ns = 10;
    step.exposed_ns = 30;  // waits may exceed the union of the calls
  }
  const Row row = row_of(run, FormulaKind::kFsdp);
  EXPECT_EQ(row.ranks[0].overlap_ns, 0);
  EXPECT_EQ(row.ranks[1].overlap_ns, 15e6);
}

TEST(DescribeFailure, NamesRankPhaseUnitAndCollective) {
  comm::AbortRecord record;
  record.rank = 1;
  record.phase = Phase::kBackward;
  record.unit = "h.3";
  record.collective = "reduce_scatter";
  record.sequence = 17;
  record.message = "killed by\nsignal 9";
  record.reason = comm::AbortRecord::Reason::kLost;
  EXPECT_EQ(describe(record),
            "rank 1 was lost in backward, unit h.3, reduce_scatter (call 17): killed by signal 9");
  record = {};
  record.reason = comm::AbortRecord::Reason::kTimeout;
  EXPECT_EQ(describe(record), "the job timed out in init");
}

// Messages repeat where the rank was, since they are also shown alone.
TEST(DescribeFailure, SaysNothingTwice) {
  comm::AbortRecord record;
  record.rank = 1;
  record.phase = Phase::kBackward;
  record.unit = "h.3";
  record.collective = "reduce_scatter";
  record.sequence = 17;
  record.reason = comm::AbortRecord::Reason::kLost;
  const std::string head = "rank 1 was lost in backward, unit h.3, reduce_scatter (call 17): ";
  record.message =
      "rank 1 (phase backward, unit 'h.3', in reduce_scatter #17) was killed by signal 9 (Killed)";
  EXPECT_EQ(describe(record), head + "killed by signal 9 (Killed)");
  record.message =
      "rank 1 ended without taking part in reduce_scatter #17 'h.3' (phase backward), for which "
      "rank 0 waits";
  EXPECT_EQ(describe(record), head + "ended without taking part in it, for which rank 0 waits");
  // A call of another unit, and what the rank does instead, are news.
  record.message =
      "rank 1 ended without taking part in reduce_scatter #17 'h.4' (phase backward), for which "
      "rank 0 waits";
  EXPECT_EQ(describe(record),
            head +
                "ended without taking part in reduce_scatter #17 'h.4' (phase backward), for "
                "which rank 0 waits");
  record.reason = comm::AbortRecord::Reason::kTimeout;
  record.message =
      "reduce_scatter #17 'h.3' (phase backward): rank 0 waited 5 s for rank 1 (phase backward, "
      "unit 'h.3', outside any collective, last call #16)";
  EXPECT_EQ(describe(record),
            "rank 1 timed out in backward, unit h.3, reduce_scatter (call 17): rank 0 waited 5 s "
            "for rank 1 (outside any collective, last call #16)");
  record.reason = comm::AbortRecord::Reason::kLost;
  record.collective.clear();
  record.message =
      "rank 1 (phase backward, unit 'h.3', outside any collective, last call #17) exited with "
      "code 7 before it had finished";
  EXPECT_EQ(describe(record),
            "rank 1 was lost in backward, unit h.3, after call 17: exited with code 7 before it "
            "had finished");
}

}  // namespace
}  // namespace shardbench::bench
