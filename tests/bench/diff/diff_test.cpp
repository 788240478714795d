#include "bench/diff/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/core/error.h"
#include "tests/bench/diff/documents.h"

namespace shardbench::bench {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ResultFile file_of(const std::vector<json>& results, const std::string& path = "a.json") {
  return parse_results(path, document_with(results).dump());
}

DiffOptions options(bool full = false) {
  DiffOptions made;
  made.metrics = choose_metrics({}, full);
  return made;
}

const DiffLine& line_of(const Diff& diff, const std::string& metric) {
  for (const DiffLine& line : diff.lines) {
    if (line.metric != nullptr && line.metric->name == metric) return line;
  }
  ADD_FAILURE() << "no line for " << metric;
  static const DiffLine kNone;
  return kNone;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Diff, TheSameFileTwice) {
  const ResultFile file = file_of({result_with("ddp", steady(4, 100e6))});
  const Diff result = diff(file, file, options(true));
  EXPECT_THAT(result.differences, IsEmpty());
  EXPECT_EQ(line_of(result, "step_time").verdict, Verdict::kNoDifference);
  EXPECT_EQ(line_of(result, "step_time").change, 0);
  EXPECT_EQ(line_of(result, "tokens_per_s").verdict, Verdict::kNoDifference);
  EXPECT_EQ(line_of(result, "backward").verdict, Verdict::kNoDifference);
  for (const char* name : {"peak", "states", "sent", "calls", "parameters", "loss"}) {
    EXPECT_EQ(line_of(result, name).verdict, Verdict::kSame) << name;
  }
  // Waiting was 0 on both sides: nothing to tell.
  for (const DiffLine& line : result.lines) EXPECT_NE(line.metric->name, "exposed");
  EXPECT_FALSE(any_worse(result, 0));
}

TEST(Diff, SlowerIsWorseAndThroughputFollows) {
  const ResultFile before = file_of({result_with("ddp", steady(4, 100e6))});
  const ResultFile after = file_of({result_with("ddp", steady(4, 110e6))});
  Diff result = diff(before, after, options());
  const DiffLine& step = line_of(result, "step_time");
  EXPECT_EQ(step.verdict, Verdict::kWorse);
  EXPECT_NEAR(*step.change, 0.1, 1e-9);
  EXPECT_LT(*step.low, 0.1);
  EXPECT_GT(*step.low, 0.08);
  const DiffLine& tokens = line_of(result, "tokens_per_s");
  EXPECT_EQ(tokens.verdict, Verdict::kWorse);
  EXPECT_NEAR(*tokens.change, 1 / 1.1 - 1, 1e-9);
  EXPECT_NEAR(*tokens.old_value, 100 * 1e9 / *step.old_value, 1e-6);
  EXPECT_NEAR(1 + *tokens.low, 1 / (1 + *step.high), 1e-12);
  EXPECT_TRUE(any_worse(result, 0));
  EXPECT_TRUE(any_worse(result, 0.09));
  EXPECT_FALSE(any_worse(result, 0.11));

  result = diff(after, before, options());
  EXPECT_EQ(line_of(result, "step_time").verdict, Verdict::kBetter);
  EXPECT_EQ(line_of(result, "tokens_per_s").verdict, Verdict::kBetter);
  EXPECT_FALSE(any_worse(result, 0));
}

TEST(Diff, ChangesBelowTheLeastOneAreNone) {
  const ResultFile before = file_of({result_with("ddp", steady(4, 100e6))});
  const ResultFile after = file_of({result_with("ddp", steady(4, 101.5e6))});
  DiffOptions chosen = options();
  EXPECT_EQ(line_of(diff(before, after, chosen), "step_time").verdict, Verdict::kNoDifference);
  chosen.min_change = 0.01;
  EXPECT_EQ(line_of(diff(before, after, chosen), "step_time").verdict, Verdict::kWorse);
}

// Half of the step: 6 % of it are 3 % of the step.
TEST(Diff, PhasesCountByWhatTheyDoToTheStep) {
  json slower = result_with("ddp", steady(4, 100e6));
  for (json& repetition : slower["by_repetition"]) {
    for (json& time : repetition["forward_ns"]) time = time.get<double>() * 1.06;
  }
  const ResultFile before = file_of({result_with("ddp", steady(4, 100e6))});
  const ResultFile after = file_of({slower});
  DiffOptions chosen = options(true);
  EXPECT_EQ(line_of(diff(before, after, chosen), "forward").verdict, Verdict::kWorse);
  chosen.min_change = 0.04;
  EXPECT_EQ(line_of(diff(before, after, chosen), "forward").verdict, Verdict::kNoDifference);
}

TEST(Diff, ExactFiguresHaveADirectionAndNoInterval) {
  json changed = result_with("ddp", steady(4, 100e6));
  changed["memory_bytes"]["peak"] = 6 << 20;
  changed["per_rank"][1]["calls"] = 3;
  changed["parameter_hash"] = "ffff";
  changed["loss"]["last"] = 2.5 * (1 + 1e-7);
  const ResultFile before = file_of({result_with("ddp", steady(4, 100e6))});
  const Diff result = diff(before, file_of({changed}), options());
  EXPECT_EQ(line_of(result, "peak").verdict, Verdict::kWorse);
  EXPECT_EQ(line_of(result, "peak").change, 1);
  EXPECT_FALSE(line_of(result, "peak").low.has_value());
  EXPECT_EQ(line_of(result, "states").verdict, Verdict::kSame);
  EXPECT_EQ(line_of(result, "calls").verdict, Verdict::kBetter);
  EXPECT_EQ(line_of(result, "calls").old_value, 9);
  EXPECT_EQ(line_of(result, "parameters").verdict, Verdict::kDifferent);
  EXPECT_EQ(line_of(result, "loss").verdict, Verdict::kNoDifference);
}

TEST(Diff, AFewStepsDecideNothing) {
  const ResultFile before = file_of({result_with("ddp", {std::vector<double>(10, 100e6)})});
  const ResultFile after = file_of({result_with("ddp", {std::vector<double>(10, 200e6)})});
  const Diff result = diff(before, after, options());
  EXPECT_EQ(line_of(result, "step_time").verdict, Verdict::kTooFew);
  EXPECT_EQ(line_of(result, "tokens_per_s").verdict, Verdict::kTooFew);
  EXPECT_FALSE(line_of(result, "step_time").change.has_value());
  EXPECT_THAT(line_of(result, "step_time").note, HasSubstr("1 repetition of 10 steps"));
  EXPECT_FALSE(any_worse(result, 0));
}

TEST(Diff, RowsThatOneSideLacks) {
  const json ddp = result_with("ddp", steady(3, 100e6));
  const ResultFile before = file_of({ddp, result_with("zero3", steady(3, 100e6))}, "old.json");
  const ResultFile after = file_of({result_with("fsdp", steady(3, 100e6)), ddp}, "new.json");
  const Diff result = diff(before, after, options());
  EXPECT_THAT(result.only_old, ElementsAre("zero3/w2/block"));
  EXPECT_THAT(result.only_new, ElementsAre("fsdp/w2/block"));
  EXPECT_EQ(result.lines.front().row, "ddp/w2/block");
  EXPECT_TRUE(any_worse(result, 1e6));  // a row has gone

  DiffOptions chosen = options();
  chosen.strategies = {"zero3"};
  EXPECT_THAT(refusal([&] { diff(before, after, chosen); }), HasSubstr("no row in common"));
  chosen.strategies = {"single"};
  EXPECT_THAT(refusal([&] { diff(before, after, chosen); }),
              HasSubstr("neither old.json nor new.json"));
}

TEST(Diff, ALossThatIsNoNumberIsWorse) {
  json ddp = result_with("ddp", steady(3, 100e6));
  ddp["loss"] = {{"first", 5.0}, {"last", 4.0}};
  const ResultFile number = file_of({ddp});
  ddp["loss"]["last"] = nullptr;
  const ResultFile none = file_of({ddp});
  EXPECT_EQ(line_of(diff(number, none, options()), "loss").verdict, Verdict::kWorse);
  EXPECT_TRUE(any_worse(diff(number, none, options()), 1e6));
  EXPECT_EQ(line_of(diff(none, number, options()), "loss").verdict, Verdict::kBetter);
  EXPECT_EQ(line_of(diff(none, none, options()), "loss").verdict, Verdict::kSame);
}

TEST(Diff, WrongRowsShowThat) {
  json wrong = result_with("ddp", steady(3, 50e6));
  wrong["parity"] = {{"ok", false}, {"first_tensor", "w"}};
  wrong["error_occurred"] = true;
  wrong["error_message"] = "differs";
  const ResultFile right = file_of({result_with("ddp", steady(3, 100e6))});
  const ResultFile bad = file_of({wrong});
  Diff result = diff(right, bad, options());
  ASSERT_EQ(result.lines.size(), 1u);
  EXPECT_EQ(result.lines[0].metric, nullptr);
  EXPECT_EQ(result.lines[0].old_text, "right");
  EXPECT_EQ(result.lines[0].new_text, "WRONG w: differs");
  EXPECT_EQ(result.lines[0].verdict, Verdict::kWorse);
  EXPECT_TRUE(any_worse(result, 1e6));
  EXPECT_EQ(diff(bad, right, options()).lines[0].verdict, Verdict::kBetter);
  EXPECT_EQ(diff(bad, bad, options()).lines[0].verdict, Verdict::kSame);
}

TEST(Diff, NamesWhatMakesItAnotherExperiment) {
  const json result = result_with("ddp", steady(3, 100e6));
  json other = document_with({result});
  other["context"]["git_sha"] = "def";
  other["context"]["date"] = "tomorrow";
  other["config"]["model"]["name"] = "large";
  other["config"]["inject"] = "slow:5@0,0,forward";
  EXPECT_THAT(diff(file_of({result}), parse_results("b.json", other.dump()), options()).differences,
              ElementsAre("context.git_sha: abc, def", "config.inject: none, slow:5@0,0,forward",
                          "config.model.name: tiny, large"));
}

TEST(Diff, TheAutotunersTimesAreNoDifferenceItsChoicesAre) {
  const json result = result_with("ddp", steady(3, 100e6));
  json before = document_with({result});
  before["config"]["tuning"] = {
      {"mode", "on"},
      {"entries",
       {{{"op", "linear"}, {"chosen", "aten"}, {"times_ns", {{"aten", 5}, {"onednn", 6}}}},
        {{"op", "norm"}, {"chosen", "aten"}, {"times_ns", {{"aten", 5}}}}}}};
  json after = before;
  after["config"]["tuning"]["entries"][0]["times_ns"]["aten"] = 7;
  const auto differences = [&] {
    return diff(parse_results("a.json", before.dump()), parse_results("b.json", after.dump()),
                options())
        .differences;
  };
  EXPECT_THAT(differences(), IsEmpty());
  after["config"]["tuning"]["entries"][0]["chosen"] = "onednn";
  EXPECT_THAT(differences(),
              ElementsAre(HasSubstr("config.tuning: 1 operation computed otherwise")));
  after["config"]["tuning"] = {{"mode", "off"}};
  EXPECT_THAT(differences(), ElementsAre(HasSubstr("2 operations computed otherwise"),
                                         "config.tuning.mode: on, off"));
}

// Two rows of one file were measured in turns: the drift that both share is no difference.
TEST(Diff, TwoRowsOfOneFile) {
  std::vector<std::vector<double>> ddp;
  std::vector<std::vector<double>> fsdp;
  for (double drift : {1.0, 1.3, 1.1, 1.6}) {
    ddp.emplace_back(10, 100e6 * drift);
    fsdp.emplace_back(10, (103e6 + 1e5 * drift) * drift);
  }
  const ResultFile file = file_of({result_with("ddp", ddp), result_with("fsdp", fsdp)});
  DiffOptions chosen = options();
  chosen.rows = {"ddp", "fsdp/w2/block"};
  const Diff result = diff(file, file, chosen);
  const DiffLine& step = line_of(result, "step_time");
  EXPECT_EQ(step.row, "ddp -> fsdp/w2/block");
  EXPECT_EQ(step.unit, "pair of repetitions");
  EXPECT_EQ(step.verdict, Verdict::kWorse);
  EXPECT_NEAR(*step.change, 0.031, 0.001);

  chosen.rows = {"ddp", "zero3"};
  EXPECT_THAT(refusal([&] { diff(file, file, chosen); }),
              HasSubstr("--rows 'zero3': no such row in a.json; choose from ddp/w2/block"));
  json wide = result_with("ddp", ddp);
  wide["name"] = "ddp/w4/block";
  const ResultFile several = file_of({result_with("ddp", ddp), wide});
  EXPECT_THAT(refusal([&] { diff(several, several, chosen); }), HasSubstr("several rows"));
}

TEST(Diff, AsManyFilesOnBothSidesArePaired) {
  std::vector<ResultFile> before;
  std::vector<ResultFile> after;
  for (double drift : {1.0, 1.3, 1.1, 1.6}) {
    before.push_back(file_of({result_with("ddp", steady(1, 100e6 * drift))}));
    after.push_back(file_of({result_with("ddp", steady(1, (105e6 + 1e5 * drift) * drift))}));
  }
  const Diff paired = diff(pooled(before), pooled(after), options());
  EXPECT_EQ(line_of(paired, "step_time").verdict, Verdict::kWorse);
  after.pop_back();
  const Diff unpaired = diff(pooled(before), pooled(after), options());
  EXPECT_EQ(line_of(unpaired, "step_time").unit, "repetition");
  EXPECT_EQ(line_of(unpaired, "step_time").verdict, Verdict::kNoDifference);
}

TEST(ChooseMetrics, ByNameInTableOrder) {
  std::vector<std::string> names;
  for (const Metric* metric : choose_metrics({"peak", "forward"}, false)) {
    names.push_back(metric->name);
  }
  EXPECT_THAT(names, ElementsAre("forward", "peak"));
  EXPECT_EQ(choose_metrics({}, true).size(), all_metrics().size());
  EXPECT_LT(choose_metrics({}, false).size(), all_metrics().size());
  EXPECT_THAT(refusal([] { choose_metrics({"step_tme"}, false); }),
              HasSubstr("did you mean 'step_time'"));
}

}  // namespace
}  // namespace shardbench::bench
