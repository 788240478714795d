// What an invocation shows as text, Markdown and csv, and the explanations under it.

#include "bench/compare/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/compare/document.h"
#include "bench/compare/explain.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

Comparison of(std::vector<std::string> strategies, int world_size) {
  Request request = small_request();
  request.strategies = std::move(strategies);
  request.worlds = {world_size};
  FakeEngine fake;
  return compare(request, fake_registry(), fake.engine());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t commas_outside_quotes(const std::string& line) {
  std::size_t count = 0;
  bool inside = false;
  for (char c : line) {
    if (c == '"') inside = !inside;
    if (c == ',' && !inside) ++count;
  }
  return count;
}

/// The explanation of the column with this topic, unbroken.
std::string explained(TableKind kind, const Comparison& comparison, const std::string& topic) {
  for (const Paragraph& paragraph : explain(comparison, make_screen(kind, comparison))) {
    if (paragraph.topic == topic) return paragraph.text;
  }
  return "no column " + topic;
}

TEST(Report, MarkdownSaysByItselfWhatWasRun) {
  const Comparison comparison = of({"ddp", "fsdp"}, 2);
  Report report;
  report.screen = make_screen(TableKind::kFull, comparison);
  report.explained = explain(comparison, report.screen);
  DocumentContext context;
  context.args = {"build/bin/shardbench", "compare", "--context", "a=it's me"};
  context.torch_version = "2.15.0";
  const auto doc = document(comparison, context);
  const std::string text = to_markdown(report, doc["context"], doc["config"]);
  EXPECT_EQ(text.rfind("# tiny: 1,598,464 params, W=2", 0), 0u) << text;
  for (const char* part : {"- command: `./shardbench compare --context 'a=it'\\''s me'`\n",
                           "- machine: ", "LibTorch 2.15.0", "- date: 2", "- data: synthetic\n",
                           "- steps: 10 measured after 2 of", "\n| strategy | W | step (ms) |",
                           "\n|---|---:|---:|", "\n| fsdp | 2 | 100.0 |", "\n## Columns\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Report, CsvHasOneLinePerRowAndPlainNumbers) {
  Request request = small_request();
  request.strategies = {"ddp", "fsdp"};
  request.worlds = {1, 2};
  FakeEngine fake;
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  for (const std::string& name : table_names()) {
    Report report;
    report.screen = make_screen(*table_kind(name), comparison);
    report.words = paragraphs(comparison, {});
    const std::vector<std::string> lines = lines_of(to_csv(report));
    ASSERT_GE(lines.size(), 3u) << name;
    for (const std::string& line : lines) {
      EXPECT_EQ(commas_outside_quotes(line), commas_outside_quotes(lines[0])) << name << line;
    }
  }
  Report report;
  report.screen = make_screen(TableKind::kBrief, comparison);
  const std::vector<std::string> lines = lines_of(to_csv(report));
  ASSERT_EQ(lines.size(), 5u);  // two blocks, one header
  EXPECT_EQ(lines[0].rfind("name,strategy,world_size,batch,units,prefetch,link,bucket_cap_mib,"
                           "over_ranks,status,step_ms,step_ci95_percent,tokens_per_s,states_mib",
                           0),
            0u)
      << lines[0];
  EXPECT_EQ(lines[4].rfind("\"fsdp/w2/block\",\"fsdp\",2,4,\"block\",1,\"none\",25,,\"right\",100,"
                           "0,640,12.195",
                           0),
            0u)
      << lines[4];
}

TEST(Report, TextFitsTheScreenWithExplanations) {
  for (int world_size : {1, 2, 3, 8}) {
    const Comparison comparison = of({"ddp", "zero1", "zero2", "zero3", "fsdp"}, world_size);
    Report report;
    report.screen = make_screen(TableKind::kBrief, comparison);
    report.words = paragraphs(comparison, {});
    report.explained = explain(comparison, report.screen);
    for (const std::string& line : lines_of(to_text(report))) EXPECT_LE(line.size(), 90u) << line;
  }
}

TEST(Report, CommandLeavesFlagsAndTheirValuesOut) {
  const std::vector<std::string> args = {"x/shardbench", "compare",   "--quiet", "--world", "4",
                                         "--link=1,2",   "--explain", "--units", "size:10k"};
  EXPECT_EQ(command_of(args, {"--quiet", "--world", "--link", "--explain"}),
            "./shardbench compare --units size:10k");
  EXPECT_EQ(command_of({}), "./shardbench");
}

TEST(Explain, EveryColumnOfEveryTableHasItsText) {
  Request request = small_request();
  request.strategies = {"ddp", "zero3", "fsdp"};
  request.worlds = {1, 3};
  request.peak_tflops = 1;
  request.sweep.units = {sharding::UnitPolicy::parse("block"),
                         sharding::UnitPolicy::parse("tensor")};
  request.sweep.batches = {2, 4};
  request.sweep.prefetches = {0, 1};
  request.sweep.links = {std::nullopt, comm::LinkModel::parse("1Gbit,20us")};
  request.sweep.bucket_caps_mib = {1, 25};
  FakeEngine fake;
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  for (const std::string& name : table_names()) {
    const Screen screen = make_screen(*table_kind(name), comparison);
    std::vector<std::string> shown;
    for (const Section& section : screen.sections) {
      for (const Column& column : section.table.columns()) {
        const std::string key = key_of(column);
        if (!column.hidden && std::find(shown.begin(), shown.end(), key) == shown.end()) {
          shown.push_back(key);
        }
      }
    }
    const std::vector<Paragraph> texts = explain(comparison, screen);
    EXPECT_EQ(texts.size(), shown.size() + 1) << name;
    for (const Paragraph& text : texts) {
      EXPECT_FALSE(text.topic.empty()) << name << ": " << text.text;
      EXPECT_EQ(text.text.find("nan"), std::string::npos) << text.text;
    }
  }
}

// P = 1,598,464 elements = 6.098 MiB.
TEST(Explain, PutsTheRunsNumbersIntoTheFormulas) {
  const Comparison comparison = of({"ddp", "zero3", "fsdp"}, 2);
  const TableKind brief = TableKind::kBrief;
  EXPECT_EQ(explained(brief, comparison, "sent MiB"),
            "Bytes that a rank sends in one step, by definition of the collectives, mean over "
            "ranks: forward all_gather 3.049 + backward all_gather 3.049 + backward reduce_scatter "
            "3.049 = 9.146; that is 3 x (W-1)/W x 6.098 MiB of weights = 9.146.");
  EXPECT_EQ(explained(brief, comparison, "step tok/s"),
            "Tokens of a step over all ranks, over its time: W 2 x batch 4 x 8 tokens = 64 / 0.1 s "
            "= 640.");
  EXPECT_EQ(explained(brief, comparison, "sent x ddp"),
            "Sent over that of ddp: 9.146 / 6.098 = 1.50.");
  EXPECT_NE(explained(brief, comparison, "memory states")
                .find("weights 3.049 + gradients 3.049 + "
                      "optimizer state 6.098"),
            std::string::npos);
}

TEST(Explain, TakesEveryPeakApart) {
  const std::string text = explained(TableKind::kMemory, of({"ddp", "fsdp"}, 2), "at peak");
  EXPECT_NE(text.find("ddp 28.39 = weights 6.098 + gradients 6.098 + optimizer state 12.20 + "
                      "activations 3.000 + temporaries 1.000, in backward, unit h.1; fsdp 16.20"),
            std::string::npos)
      << text;
}

TEST(Explain, SaysWhoKeepsWhat) {
  const std::string text =
      explained(TableKind::kFull, of({"ddp", "zero1", "zero2", "zero3", "fsdp"}, 3), "strategy");
  for (const char* part :
       {"ddp weights, gradients and optimizer state whole;",
        "zero1 weights and gradients whole, optimizer state of its tensors;",
        "zero2 weights whole, gradients and optimizer state of its tensors;",
        "zero3 all three of the tensors it owns", "fsdp 1/W of the rows of every tensor"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Explain, NothingRightNothingExplained) {
  Request request = small_request();
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun&) { parity.ok = false; };
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  EXPECT_TRUE(explain(comparison, make_screen(TableKind::kFull, comparison)).empty());
}

}  // namespace
}  // namespace shardbench::bench
