#include "bench/diff/result_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "bench/compare/document.h"
#include "common/core/error.h"
#include "tests/bench/diff/documents.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

ResultFile parse(const json& document) { return parse_results("a.json", document.dump()); }

std::string refused(const json& document) {
  return refusal([&] { parse(document); });
}

TEST(ParseResults, WhatCompareWrites) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) rank.steps.back().step_ns += 10 * rank.rank;
  };
  Request request = small_request();
  request.repetitions = 2;
  request.strategies = {"ddp", "fsdp"};
  const Comparison comparison = compare(request, fake_registry(), fake.engine());
  const ResultFile file = parse_results("a.json", document(comparison, {}).dump());
  ASSERT_EQ(file.rows.size(), 2u);
  const ResultRow& row = file.rows[1];
  EXPECT_EQ(row.name, "fsdp/w2/block");
  EXPECT_TRUE(row.right());
  ASSERT_EQ(row.times.at("step").size(), 2u);
  ASSERT_EQ(row.times.at("step")[1].size(), 10u);
  EXPECT_EQ(row.times.at("step")[1].front(), 100e6);
  EXPECT_EQ(row.times.at("step")[1].back(), 100e6 + 10);  // of the slowest rank
  EXPECT_EQ(row.times.at("forward")[0].front(), 30e6);
  EXPECT_EQ(row.times.at("exposed")[0].front(), 5e6);
  EXPECT_NEAR(row.tokens_per_step, 2 * 4 * 8, 1e-9);
  EXPECT_EQ(row.figures.at("states"),
            static_cast<double>(comparison.blocks[0].rows[1].persistent().max));
  EXPECT_EQ(row.figures.at("sent"), comparison.blocks[0].rows[1].sent().mean);
  EXPECT_NEAR(row.figures.at("loss"), 5.0 - 0.1 * 11, 1e-12);
  EXPECT_EQ(row.parameter_hash, "0123456789abcdef");
  EXPECT_EQ(file.config.at("repetitions"), 2);
}

TEST(ParseResults, WrongAndFailedRowsHaveNoTimes) {
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& run) {
    if (run.config.strategy != "zero3") return;
    parity.ok = false;
    parity.first_tensor = "h.0.w";
    parity.detail = "differs";
  };
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy == "fsdp") run.failure.emplace();
  };
  const Comparison comparison = compare(small_request(), fake_registry(), fake.engine());
  const ResultFile file = parse_results("a.json", document(comparison, {}).dump());
  EXPECT_TRUE(file.find("ddp/w2/block")->right());
  EXPECT_THAT(file.find("zero3/w2/block")->problem, HasSubstr("WRONG h.0.w: differs"));
  EXPECT_TRUE(file.find("zero3/w2/block")->times.empty());
  EXPECT_THAT(file.find("fsdp/w2/block")->problem, HasSubstr("FAILED "));
}

TEST(ParseResults, OlderDocumentsSplitBySteps) {
  json result = result_with("ddp", {{1, 2}, {3, 4}, {5, 6}});
  result.erase("by_repetition");
  const ResultFile file = parse(document_with({result}));
  EXPECT_EQ(file.rows[0].times.at("step"), (Groups{{1, 2}, {3, 4}, {5, 6}}));
  result["repetitions"] = 4;  // does not divide: taken as one
  EXPECT_EQ(parse(document_with({result})).rows[0].times.at("step").size(), 1u);
}

TEST(ParseResults, NamesAreMadeUnique) {
  const json result = result_with("ddp", steady(3, 100));
  const ResultFile file = parse(document_with({result, result}));
  EXPECT_EQ(file.rows[1].name, "ddp/w2/block#2");
  EXPECT_EQ(file.find("zero3"), nullptr);
}

TEST(ParseResults, Refusals) {
  const json good = document_with({result_with("ddp", steady(3, 100))});
  EXPECT_THAT(refusal([] { parse_results("a.json", " \n"); }), HasSubstr("a.json: empty"));
  EXPECT_THAT(refusal([] { parse_results("a.json", "strategy,ms\n"); }),
              HasSubstr("a.json: not JSON"));
  const std::string text = good.dump(1);
  for (std::size_t length : {std::size_t{1}, text.size() / 3, text.size() / 2, text.size() - 1}) {
    EXPECT_THAT(refusal([&] { parse_results("a.json", text.substr(0, length)); }),
                HasSubstr("a.json: cut short"))
        << length;
  }
  EXPECT_THAT(refused(json::array()), HasSubstr("no schema_version"));
  json bad = good;
  bad["schema_version"] = 2;
  EXPECT_THAT(refused(bad), HasSubstr("a.json: schema_version 2 is not 1"));
  bad = good;
  bad["results"] = json::array();
  EXPECT_THAT(refused(bad), HasSubstr("a.json: it holds no results"));
  bad.erase("results");
  EXPECT_THAT(refused(bad), HasSubstr("a.json: not a complete result document"));
  bad = good;
  bad["results"][0]["by_repetition"][0]["times"][0] = "fast";
  EXPECT_THAT(refused(bad), HasSubstr("a.json: not a complete result document"));
  bad["results"][0]["by_repetition"][0]["times"][0] = -1;
  EXPECT_THAT(refused(bad), HasSubstr("a.json: a time of -1 ns"));
  bad = good;
  bad["results"][0].erase("by_repetition");
  bad["results"][0].erase("step_time_ns");
  EXPECT_THAT(refused(bad), HasSubstr("ddp/w2/block has no step times"));
  bad = good;
  bad["results"][0]["by_repetition"][1]["times"] = json::array();
  EXPECT_THAT(refused(bad), HasSubstr("has no step times"));
}

TEST(ReadResults, FilesThatAreNone) {
  EXPECT_THAT(refusal([] { read_results("/no/such/file.json"); }),
              HasSubstr("/no/such/file.json: cannot be read"));
  EXPECT_THAT(refusal([] { read_results("/tmp"); }), HasSubstr("/tmp: a folder"));
}

TEST(Pooled, EachFileIsOneRepetition) {
  std::vector<ResultFile> files;
  files.push_back(parse(document_with({result_with("ddp", {{1, 2}, {3}})})));
  files.push_back(parse(document_with({result_with("ddp", {{4, 5}})})));
  EXPECT_EQ(pooled({files[0]}).rows[0].times.at("step"), (Groups{{1, 2}, {3}}));
  const ResultFile all = pooled(files);
  EXPECT_EQ(all.files, 2);
  EXPECT_EQ(all.rows[0].times.at("step"), (Groups{{1, 2, 3}, {4, 5}}));
}

TEST(Pooled, OtherCommandsAreRefusedAndOneWrongFileIsEnough) {
  const json right = result_with("ddp", steady(1, 100));
  json wrong = right;
  wrong["parity"] = {{"ok", false}, {"first_tensor", "w"}};
  wrong["error_occurred"] = true;
  wrong["error_message"] = "differs";
  EXPECT_EQ(pooled({parse(document_with({right})), parse(document_with({wrong}))}).rows[0].problem,
            "WRONG w: differs");
  const auto pool = [&](const json& second) {
    return refusal([&] {
      pooled({parse(document_with({right})), parse_results("b.json", second.dump())});
    });
  };
  EXPECT_THAT(pool(document_with({result_with("fsdp", steady(1, 100))})),
              HasSubstr("b.json: has fsdp/w2/block"));
  EXPECT_THAT(pool(document_with({right, right})), HasSubstr("another number of rows"));
  json other = right;
  other["parameter_hash"] = "ff";
  EXPECT_THAT(pool(document_with({other})), HasSubstr("other parameters"));
}

}  // namespace
}  // namespace shardbench::bench
