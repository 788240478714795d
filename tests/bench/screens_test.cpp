#include "bench/compare/screens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>

#include "bench/compare/cells.h"
#include "bench/compare/plain_words.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

Comparison small(int world_size, FakeEngine fake = {}) {
  Request request = small_request();
  request.worlds = {world_size};
  return compare(request, fake_registry(), fake.engine());
}

std::string brief_text(const Comparison& comparison) {
  return brief_section(comparison, comparison.blocks[0]).table.render();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ContextLine, SaysWhatWasCompared) {
  Request request = small_request();
  const sharding::ModelShape model = models::shape_of(request.base.model);
  EXPECT_EQ(context_line(request, model, {2}),
            "tiny: 1,598,464 params, W=2, batch 4/rank, seq 8, fp32, units block, shm, no link");
  request.base.accumulation = 2;
  request.global_batch = 16;
  EXPECT_EQ(context_line(request, model, {1, 2}),
            "tiny: 1,598,464 params, W=1,2, global batch 16 x 2 micro-batches, seq 8, fp32, units "
            "block, shm (W=1: local), no link");
  request.base.options.init = train::InitMode::kBroadcast;
  EXPECT_TRUE(context_line(request, model, {2}).ends_with("no link, init broadcast"));
}

TEST(ContextLine, SaysWhatComputesAndTravels) {
  Request request = small_request();
  const sharding::ModelShape model = models::shape_of(request.base.model);
  request.base.options.compute_dtype = DType::kBFloat16;
  EXPECT_NE(context_line(request, model, {2}).find("seq 8, bf16 (reduce fp32), units"),
            std::string::npos);
  request.base.options.compute_dtype = request.base.options.reduce_dtype = DType::kFloat16;
  request.base.loss_scale = train::LossScale::parse("1024");
  EXPECT_NE(context_line(request, model, {2}).find("fp16 (reduce fp16), loss scale 1024, units"),
            std::string::npos);
}

// P = 1,598,464: states 16P = 24.39 MiB, weights 6.098 MiB, f = 1/2.
TEST(BriefTable, DefaultScreen) {
  const Comparison comparison = small(2);
  const std::vector<std::string> expected = {
      "              step           memory, MiB        sent, as formula?  exposed balance    same",
      "strategy    ms +-% tok/s  states  peak x ddp    MiB x ddp  ok calls     ms  x mean  result",
      "ddp      100.0 0.0   640   24.39 28.39  1.00  6.098  1.00 yes     2  5.000    1.00     yes",
      "zero3    100.0 0.0   640   12.25 16.25  0.57  9.146  1.50 yes    18  5.000    1.00     yes",
      "fsdp     100.0 0.0   640   12.20 16.20  0.57  9.146  1.50 yes     9  5.000    1.00     yes"};
  EXPECT_EQ(lines_of(brief_text(comparison)), expected);
}

TEST(BriefTable, OneRankSendsNothingAndSaysSoWithADash) {
  const Comparison comparison = small(1);
  const std::vector<std::string> lines = lines_of(brief_text(comparison));
  ASSERT_EQ(lines.size(), 5u);
  std::istringstream cells(lines[4]);
  const std::vector<std::string> row{std::istream_iterator<std::string>(cells), {}};
  EXPECT_EQ(row, (std::vector<std::string>{"fsdp", "100.0", "0.0", "320", "24.39", "28.39", "1.00",
                                           "-", "-", "-", "-", "-", "-", "yes"}));
}

TEST(BriefTable, AnIntervalWiderThanTheMedianKeepsTheColumnNarrow) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) {
      for (std::size_t s = 8; s < rank.steps.size(); ++s) rank.steps[s].step_ns *= 100;
    }
  };
  const Comparison comparison = small(2, fake);
  const std::string text = brief_text(comparison);
  EXPECT_NE(text.find(" >99 "), std::string::npos) << text;
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 90u) << line;
}

TEST(BriefTable, LargeRatesAreCutToThousands) {
  FakeEngine fake;
  fake.step_ns = 100'000;
  const Comparison comparison = small(2, fake);
  const std::string text = brief_text(comparison);
  EXPECT_NE(text.find("  640k "), std::string::npos) << text;
}

TEST(BriefTable, AWrongRowHasNoTimeAndNamesTheTensor) {
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& run) {
    if (run.config.strategy != "fsdp") return;
    parity.ok = parity.bit_equal = false;
    parity.first_tensor = "h.0.attn.qkv.weight";
    parity.detail = "its gradient of step 1 differs";
  };
  const Comparison comparison = small(2, fake);
  const std::vector<std::string> lines = lines_of(brief_text(comparison));
  EXPECT_EQ(lines.back(), "fsdp     WRONG h.0.attn.qkv.weight: its gradient of step 1 differs");
  for (const std::string& table :
       {full_section(comparison).table.render(), memory_section(comparison).table.render(),
        traffic_section(comparison).table.render(), time_section(comparison).table.render()}) {
    EXPECT_NE(table.find("WRONG h.0.attn.qkv.weight"), std::string::npos) << table;
  }
  const std::string words = plain_words(comparison, {});
  EXPECT_EQ(words.rfind("Result   fsdp W=2: WRONG h.0.attn.qkv.weight", 0), 0u) << words;
  EXPECT_NE(words.find("2 of 3 rows"), std::string::npos) << words;
}

TEST(BriefTable, AFailedBaselineLeavesRatiosOut) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy != "ddp") return;
    run.ranks.clear();
    run.failure.emplace();
    run.failure->rank = 0;
    run.failure->message = std::string(200, 'x');
  };
  const Comparison comparison = small(2, fake);
  const std::vector<std::string> lines = lines_of(brief_text(comparison));
  EXPECT_EQ(lines[2].rfind("ddp      FAILED rank 0 failed in init: xxx", 0), 0u) << lines[2];
  EXPECT_LE(lines[2].size(), 90u);
  EXPECT_EQ(ratio_to_cell(1, 0).text, "-");
  EXPECT_NE(lines[3].find("16.25     -"), std::string::npos) << lines[3];
}

TEST(BriefTable, BytesUnlikeTheFormulaSayNo) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy == "zero3") run.ranks[1].traffic[0].wire.sent += 64;
  };
  const Comparison comparison = small(2, fake);
  const std::vector<std::string> lines = lines_of(brief_text(comparison));
  EXPECT_NE(lines[3].find(" NO "), std::string::npos) << lines[3];
  EXPECT_NE(plain_words(comparison, {}).find("zero3 W=2: rank 1 forward broadcast: calls say"),
            std::string::npos);
  EXPECT_EQ(exit_code(comparison), 1);
}

class Width : public ::testing::TestWithParam<int> {};

TEST_P(Width, DefaultScreenFitsNinetyColumns) {
  FakeEngine fake;
  fake.step_ns = 12'345'678'901;
  const Comparison comparison = small(GetParam(), fake);
  Invocation invocation;
  for (const std::string& line : lines_of(render_table(TableKind::kBrief, comparison) +
                                          plain_words(comparison, invocation))) {
    EXPECT_LE(line.size(), 90u) << line;
  }
}
INSTANTIATE_TEST_SUITE_P(WorldSizes, Width, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST(PlainWords, MadeFromTheRunsNumbers) {
  const std::string words = plain_words(small(2), {});
  EXPECT_EQ(
      words,
      "Result   All 3 rows end with the weights and optimizer state of one process doing the "
      "same\n"
      "         work, bit for bit (hash 0123456789abcdef); step-1 gradients within 3.1e-07 of "
      "the\n"
      "         whole batch at once.\n"
      "Memory   Weights, gradients and AdamW state are 16 bytes per parameter, 16/W = 8 when "
      "cut.\n"
      "         A rank keeps: ddp 16 (24.39 MiB); zero3 8 (12.14-12.25 MiB); fsdp 8 (12.20 "
      "MiB).\n"
      "         Activations stay whole: ddp, zero3 and fsdp 3.000 MiB.\n"
      "Traffic  A rank sends per step, in multiples of the weights (6.098 MiB): ddp 2.00f, "
      "zero3\n"
      "         and fsdp 3.00f with f = (W-1)/W = 0.50; fsdp is 1.50 x ddp. Bytes counted as "
      "they\n"
      "         moved = formula, on every rank.\n"
      "Time     Through shared memory a rank waits ddp, zero3 and fsdp 5.0 % of a step. A network\n"
      "         of 1 Gbit/s, nothing hidden, would make it ddp 100.0 -> 151.2 ms, zero3 and fsdp\n"
      "         100.0 -> 176.7 ms (estimate). See it: ./shardbench compare --link 1Gbit,20us\n"
      "Balance  The fullest rank keeps, x mean: zero3 1.00, fsdp 1.00; at W=8: zero3 1.31, "
      "fsdp\n"
      "         1.00 (zero3's owners keep whole tensors). See it: ./shardbench compare --world "
      "8\n"
      "         --table full\n");
}

TEST(PlainWords, SgdWithMomentumKeepsTwelveBytes) {
  Request request = small_request();
  request.base.optimizer.kind = train::OptimizerKind::kSgd;
  FakeEngine fake;
  const std::string words = plain_words(compare(request, fake_registry(), fake.engine()), {});
  EXPECT_NE(words.find("SGD state are 12 bytes per parameter, 12/W = 6"), std::string::npos)
      << words;
}

TEST(PlainWords, FiveStrategiesAndWhatEachCuts) {
  Request request = small_request();
  request.strategies = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
  request.worlds = {4};
  FakeEngine fake;
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  std::map<std::string, std::string> words;
  for (const Paragraph& paragraph : paragraphs(comparison, {})) {
    words[paragraph.topic] = paragraph.text;
  }
  // 8P + 8P/W and 4P + 12P/W bytes at W = 4.
  for (const char* part : {"ddp 16 (", "zero1 10 (", "zero2 7 (", "zero3 4 (", "fsdp 4 (",
                           "Of the three, ddp cuts nothing, zero1 cuts optimizer state, zero2 cuts "
                           "gradients and optimizer state, zero3 and fsdp cut all three."}) {
    EXPECT_NE(words["Memory"].find(part), std::string::npos) << words["Memory"];
  }
  EXPECT_NE(words["Traffic"].find("ddp, zero1 and zero2 2.00f, zero3 and fsdp 3.00f"),
            std::string::npos)
      << words["Traffic"];
  EXPECT_NE(words["Balance"].find("owners under zero1, zero2 and zero3 keep whole tensors"),
            std::string::npos)
      << words["Balance"];
}

TEST(PlainWords, LossesThatAreNoNumbersAreCalledOut) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) {
      for (std::size_t s = 3; s < rank.steps.size(); ++s) rank.steps[s].loss = std::nan("");
    }
  };
  const std::string text = paragraphs(small(2, fake), {}).front().text;
  EXPECT_EQ(text.rfind("The loss became NaN at step 4: the rows are still compared", 0), 0u)
      << text;
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy != "fsdp") return;
    run.ranks[0].steps[5].loss = std::numeric_limits<double>::infinity();
  };
  EXPECT_NE(paragraphs(small(2, fake), {}).front().text.find("infinite at step 6 of fsdp"),
            std::string::npos);
}

TEST(PlainWords, WithoutAWholeBatchReferenceItSaysSo) {
  FakeEngine fake;
  fake.spoil_reference = [](train::ReferenceRun& run) { run.result->whole_batch = false; };
  const std::string text = paragraphs(small(2, fake), {}).front().text;
  EXPECT_NE(text.find("the whole batch at once is no reference here"), std::string::npos) << text;
}

TEST(PlainWords, LowerPrecisionHasItsOwnBytes) {
  Request request = small_request();
  request.base.options.compute_dtype = DType::kBFloat16;
  FakeEngine fake;
  const std::vector<Paragraph> all =
      paragraphs(compare(request, fake_registry(), fake.engine()), {});
  const auto has = [&](std::size_t paragraph, const std::string& part) {
    EXPECT_NE(all[paragraph].text.find(part), std::string::npos) << all[paragraph].text;
  };
  has(0, "whose bounds are those of fp32");
  has(1, "Master weights, gradients and AdamW state are 16 bytes per parameter, 16/W = 8 when cut");
  has(1, "operations read bf16; ddp keeps a whole copy in bf16, 2 more");
  has(1, "ddp 18 (");
  has(1, "zero3 8 (");
  has(1, "fsdp 8 (");
  has(2, "(6.098 MiB in fp32; weights travel as bf16, gradients as fp32)");
  has(2, "ddp, zero3 and fsdp 2.00f");
}

TEST(PlainWords, KeptAfterForwardSendsTwice) {
  Request request = small_request();
  request.base.options.reshard_after_forward = train::Reshard::kFalse;
  FakeEngine fake;
  const std::string words = plain_words(compare(request, fake_registry(), fake.engine()), {});
  EXPECT_NE(words.find("ddp, zero3 and\n         fsdp 2.00f"), std::string::npos) << words;
}

TEST(PlainWords, NothingRightLeavesOnlyTheResult) {
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun&) { parity.ok = false; };
  const std::string words = plain_words(small(2, fake), {});
  EXPECT_NE(words.find("No row is right"), std::string::npos);
  EXPECT_EQ(words.find("Memory"), std::string::npos);
}

TEST(FullTable, RanksThatDifferGetMinMeanMax) {
  const std::string text = full_section(small(3)).table.render();
  const std::vector<std::string> lines = lines_of(text);
  // zero3 differs between ranks at W = 3, ddp does not.
  ASSERT_GE(lines.size(), 7u) << text;
  EXPECT_EQ(lines[2].rfind("ddp      3", 0), 0u) << text;
  EXPECT_EQ(lines[3].rfind("zero3    3", 0), 0u) << text;
  EXPECT_EQ(lines[4].rfind("  min", 0), 0u) << text;
  EXPECT_EQ(lines[5].rfind("  mean", 0), 0u) << text;
  EXPECT_EQ(lines[6].rfind("  max", 0), 0u) << text;
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
}

TEST(MemoryTable, PartsSumToThePeakAndTheFormulaMatches) {
  const std::string text = memory_section(small(2)).table.render();
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 8u) << text;  // zero3 has min, mean and max
  EXPECT_EQ(
      lines[1],
      "strategy W  param  grad optim gathered ungrad   act  comm other  peak  at           step "
      "1       states formula  diff padding      rss   pss  faults allocs");
  EXPECT_EQ(lines[2],
            "ddp      2  6.098 6.098 12.20    0.000  0.000 3.000 0.000 1.000 28.39  backward/h.1  "
            "28.39        24.39   24.39     0       0    200.0 150.0      12      3");
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) rank.memory.init_peak = 5 << 20;
  };
  const std::vector<std::string> with_init =
      lines_of(memory_section(small(2, fake)).table.render());
  EXPECT_NE(with_init[1].find("step 1  init "), std::string::npos) << with_init[1];
  EXPECT_NE(with_init[2].find(" 28.39 5.000 "), std::string::npos) << with_init[2];
}

TEST(TrafficTable, PerPhaseAndKindWithTotals) {
  const std::vector<std::string> lines = lines_of(traffic_section(small(2)).table.render());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  for (const char* start : {"ddp      2 backward all_reduce ", "zero3    2 forward  broadcast ",
                            "           backward reduce ", "fsdp     2 forward  all_gather ",
                            "           backward reduce_scatter ", "           total "}) {
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(),
                            [&](const std::string& line) { return line.rfind(start, 0) == 0; }))
        << start << "\n"
        << all;
  }
  // ddp: two all-reduces of 3.049 MiB on average; each rank sends S + (W-2)s = 6.098 MiB.
  EXPECT_EQ(
      lines[2],
      "ddp      2 backward all_reduce         2  3.049                     6.098 6.098   6.098 "
      "       0   6.394");
  EXPECT_NE(traffic_section(small(1)).table.render().find("nothing sent"), std::string::npos);
}

TEST(TimeTable, OverlapIsWhatIsHidden) {
  const std::vector<std::string> lines = lines_of(time_section(small(2)).table.render());
  EXPECT_EQ(lines[2],
            "ddp      2  100.0 100.0 100.0 30.00 60.00 10.00       20.00   15.00   5.000       75");
}

TEST(RenderTable, OneBlockPerWorldSize) {
  Request request = small_request();
  request.worlds = {1, 2};
  FakeEngine fake;
  const std::string text =
      render_table(TableKind::kBrief, compare(request, fake_registry(), fake.engine()));
  EXPECT_NE(text.find("\nW=1\n"), std::string::npos);
  EXPECT_NE(text.find("\nW=2\n"), std::string::npos);
  EXPECT_EQ(text.rfind("tiny: ", 0), 0u);
}

TEST(TableKindOf, KnowsItsNames) {
  EXPECT_EQ(table_kind("traffic"), TableKind::kTraffic);
  EXPECT_EQ(table_kind("pareto"), TableKind::kPareto);
  EXPECT_FALSE(table_kind("wide").has_value());
  EXPECT_EQ(table_kind("peers"), TableKind::kPeers);
  EXPECT_EQ(table_names().size(), 9u);
}

}  // namespace
}  // namespace shardbench::bench
