#include "bench/compare/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "bench/compare/document.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using Json = nlohmann::ordered_json;
using ops::Candidate;
using ops::TuneMode;
using ::testing::HasSubstr;

/// What a job of this batch measures: one key that all share and one of its own.
ops::TuningTable table_of(const train::RunConfig& config) {
  ops::TuningTable table;
  table.mode = TuneMode::kOn;
  for (std::int64_t rows : {std::int64_t{7}, 100 * config.batch}) {
    table.entries.push_back({{ops::Pass::kForward, DType::kFloat32, true, false, rows, 4, 5},
                             Candidate::kOneDnnLinear,
                             {{Candidate::kAten, 200, true},
                              {Candidate::kOneDnnLinear, 100, true},
                              {Candidate::kOneDnnMatmul, 0, false}}});
  }
  return table;
}

class CompareTuning : public ::testing::Test {
 protected:
  CompareTuning() : request(small_request()) {
    request.base.tuning.mode = TuneMode::kOn;
    engine = fake.engine();
    engine.tune = [this](const train::RunConfig& config) {
      fake.log.push_back(fmt::format("tune/{}", config.batch));
      return result ? *result : train::TuningRun{table_of(config), 0};
    };
    const auto run = engine.run;
    engine.run = [this, run](const train::RunConfig& config, const train::Progress& progress,
                             const train::RankObserver& observer) {
      seen.push_back(config.tuning);
      return run(config, progress, observer);
    };
    const auto reference = engine.reference;
    engine.reference = [this, reference](const train::RunConfig& config,
                                         train::AccumulationOrder order,
                                         const train::Progress& progress) {
      seen.push_back(config.tuning);
      return reference(config, order, progress);
    };
  }

  Comparison run() { return compare(request, fake_registry(), engine); }
  long tunings() const {
    return std::count_if(fake.log.begin(), fake.log.end(),
                         [](const std::string& entry) { return entry.rfind("tune/", 0) == 0; });
  }

  Request request;
  FakeEngine fake;
  Engine engine;
  std::optional<train::TuningRun> result;
  std::vector<ops::TuningTable> seen;
};

TEST_F(CompareTuning, OnceAndFirstAndTheSameForAll) {
  request.worlds = {1, 2};
  request.repetitions = 2;
  const Comparison comparison = run();
  EXPECT_EQ(fake.log.front(), "tune/4");
  EXPECT_EQ(tunings(), 1);
  ASSERT_EQ(seen.size(), 14u);  // two worlds: a reference and two rounds of three
  for (const ops::TuningTable& table : seen) {
    EXPECT_EQ(table.mode, TuneMode::kOn);
    EXPECT_EQ(table.entries.size(), 2u);
  }
  EXPECT_EQ(comparison.request.base.tuning.entries.size(), 2u);
}

TEST_F(CompareTuning, OncePerBatchAndKeysOnce) {
  request.worlds = {1, 2, 4};
  request.global_batch = 8;
  run();
  EXPECT_EQ(tunings(), 3);
  for (const ops::TuningTable& table : seen) EXPECT_EQ(table.entries.size(), 4u);
}

TEST_F(CompareTuning, OnlyWhereItIsAskedFor) {
  for (TuneMode mode : {TuneMode::kOff, TuneMode::kFixed}) {
    request.base.tuning.mode = mode;
    seen.clear();
    run();
    EXPECT_EQ(tunings(), 0);
    for (const ops::TuningTable& table : seen) EXPECT_EQ(table.mode, mode);
  }
}

TEST_F(CompareTuning, AnEngineThatCannotMeasureUsesTheRule) {
  engine.tune = nullptr;
  run();
  for (const ops::TuningTable& table : seen) EXPECT_EQ(table.mode, TuneMode::kFixed);
}

TEST_F(CompareTuning, ARequestThatCannotBeMetMeasuresNothing) {
  request.strategies = {"ddp", "nonsense"};
  EXPECT_THROW(run(), UserError);
  EXPECT_EQ(tunings(), 0);
}

TEST_F(CompareTuning, AFailureIsNotedAndChangesNothingElse) {
  result.emplace();
  result->table.note = "autotuning failed (planted); the fixed rule is used";
  const Comparison comparison = run();
  EXPECT_EQ(exit_code(comparison), 0);
  const Json doc = document(comparison, {});
  EXPECT_EQ(doc["config"]["tuning"]["mode"], "fixed");
  EXPECT_EQ(doc["config"]["tuning"]["note"], result->table.note);
  EXPECT_EQ(tuning_line(comparison.request.base.tuning), result->table.note);
}

TEST_F(CompareTuning, ASignalEndsTheComparison) {
  result.emplace();
  result->signal = SIGINT;
  const Comparison comparison = run();
  EXPECT_EQ(fake.log, std::vector<std::string>{"tune/4"});
  EXPECT_EQ(exit_code(comparison), 130);
  EXPECT_EQ(document(comparison, {})["okay"], false);
}

TEST_F(CompareTuning, TheDocumentNamesChoicesAndTimes) {
  const Json tuning = document(run(), {})["config"]["tuning"];
  EXPECT_EQ(tuning["mode"], "on");
  ASSERT_EQ(tuning["entries"].size(), 2u);
  const Json& entry = tuning["entries"][1];
  EXPECT_EQ(entry["op"], "linear");
  EXPECT_EQ(entry["pass"], "forward");
  EXPECT_EQ(entry["shape"], (Json{{"rows", 400}, {"in", 4}, {"out", 5}}));
  EXPECT_EQ(entry["dtype"], "fp32");
  EXPECT_EQ(entry["bias"], true);
  EXPECT_FALSE(entry.contains("accumulate"));
  EXPECT_EQ(entry["chosen"], "onednn_linear");
  EXPECT_EQ(entry["times_ns"], (Json{{"aten", 200}, {"onednn_linear", 100}}));
  EXPECT_EQ(entry["refused"], Json{"onednn_matmul"});
  EXPECT_FALSE(tuning.contains("note"));
}

TEST(TuningLine, SaysHowManyChoicesAreNotAtens) {
  ops::TuningTable table;
  EXPECT_EQ(tuning_line(table), "");
  table.mode = TuneMode::kOff;
  EXPECT_EQ(tuning_line(table), "");
  table.mode = TuneMode::kOn;
  table.entries.resize(3);
  table.entries[1].chosen = Candidate::kOneDnnMatmul;
  EXPECT_EQ(tuning_line(table),
            "tuning: 3 shapes measured, 1 of them faster otherwise than by ATen");
}

}  // namespace
}  // namespace shardbench::bench
