// Reading a result document back, and what is made from it: the same tables and texts.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/compare/document.h"
#include "bench/compare/explain.h"
#include "bench/compare/plain_words.h"
#include "bench/compare/read_document.h"
#include "bench/compare/screens.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using Json = nlohmann::ordered_json;

Request five_by_two() {
  Request request = small_request();
  request.strategies = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
  request.worlds = {1, 3};
  request.repetitions = 2;
  request.peak_tflops = 0.5;
  request.sweep.units = {sharding::UnitPolicy::parse("block"),
                         sharding::UnitPolicy::parse("tensor")};
  request.sweep.prefetches = {0, 2};
  request.base.options.forward_prefetch = request.base.options.backward_prefetch = 0;
  request.sweep.links = {std::nullopt, comm::LinkModel::parse("1Gbit,20us")};
  return request;
}

Comparison run(const Request& request, FakeEngine fake = {}) {
  Comparison comparison = compare(request, fake_registry(), fake.engine());
  comparison.cores = 2;
  return comparison;
}

std::string stored(const Comparison& comparison) {
  Json doc = document(comparison, {});
  doc["context"]["num_cpus"] = comparison.cores;
  return doc.dump(1);
}

StoredResults back(const Comparison& comparison) {
  return read_document(stored(comparison), "r.json", fake_registry());
}

std::string refusal(const std::string& text) {
  try {
    read_document(text, "r.json", fake_registry());
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_same(const Comparison& comparison) {
  const StoredResults again = back(comparison);
  for (const std::string& name : table_names()) {
    const TableKind kind = *table_kind(name);
    EXPECT_EQ(render_table(kind, again.comparison), render_table(kind, comparison)) << name;
    const std::string before = to_text(explain(comparison, make_screen(kind, comparison)), 20);
    EXPECT_EQ(to_text(explain(again.comparison, make_screen(kind, again.comparison)), 20), before)
        << name;
  }
  EXPECT_EQ(plain_words(again.comparison, {}), plain_words(comparison, {}));
}

TEST(Stored, LowerPrecisionComesBack) {
  Request request = five_by_two();
  request.base.options.compute_dtype = DType::kFloat16;
  request.base.options.reduce_dtype = DType::kBFloat16;
  request.base.loss_scale = train::LossScale::parse("dynamic");
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) {
      for (train::StepRecord& step : rank.steps) step.loss_scale = 65536;
      rank.steps[1].skipped = true;
    }
  };
  const Comparison comparison = run(request, fake);
  const Json doc = Json::parse(stored(comparison));
  EXPECT_EQ(doc["config"]["recipe"]["param_dtype"], "fp16");
  EXPECT_EQ(doc["config"]["recipe"]["gather_dtype"], "fp16");
  EXPECT_EQ(doc["config"]["recipe"]["reduce_dtype"], "bf16");
  EXPECT_EQ(doc["config"]["recipe"]["master_dtype"], "fp32");
  EXPECT_EQ(doc["config"]["loss_scale"], "dynamic");
  EXPECT_EQ(doc["results"][0]["skipped_steps"], Json({2}));
  EXPECT_EQ(doc["results"][0]["loss_scales"][0], 65536);
  expect_same(comparison);
  const train::RunConfig base = back(comparison).comparison.request.base;
  EXPECT_EQ(base.options.compute_dtype, DType::kFloat16);
  EXPECT_EQ(base.options.reduce_dtype, DType::kBFloat16);
  EXPECT_TRUE(base.loss_scale && base.loss_scale->dynamic);
  EXPECT_EQ(back(comparison).comparison.blocks[0].rows[0].skipped_steps, std::vector<int>{2});
  std::string text = stored(comparison);
  text.replace(text.find("\"fp16\""), 6, "\"fp12\"");
  EXPECT_NE(refusal(text).find("fp12"), std::string::npos);
}

TEST(Stored, EveryTableAndTextComesOutTheSame) {
  expect_same(run(small_request()));
  expect_same(run(five_by_two()));
}

TEST(Stored, StrongScalingAndAccumulationToo) {
  Request request = small_request();
  request.worlds = {1, 2};
  request.global_batch = 8;
  request.base.accumulation = 2;
  request.base.optimizer.kind = train::OptimizerKind::kSgd;
  request.base.options.reshard_after_forward = train::Reshard::kAuto;
  request.sweep.bucket_caps_mib = {0.001, 25};
  request.base.options.bucket_cap_mib = 0.001;
  expect_same(run(request));
}

TEST(Stored, TheLimitToo) {
  FakeEngine fake;
  fake.limits = {{20'000'001, 40'000'003, 2.25, 8.125}};
  Request request = small_request();
  request.limit = true;
  expect_same(run(request, fake));
}

TEST(Stored, HostsAndCommThreadToo) {
  Request request = small_request();
  request.worlds = {2, 4};
  request.base.link = comm::LinkModel::parse("10Gbit,1us");
  request.base.link->hosts = comm::HostLink{comm::LinkSpeed::parse("1Gbit,20us"), 2};
  request.base.comm_thread = true;
  const Comparison comparison = run(request);
  expect_same(comparison);
  const train::RunConfig again = back(comparison).comparison.request.base;
  EXPECT_TRUE(again.comm_thread);
  EXPECT_EQ(again.link->to_string(), "10Gbit,1us; 1Gbit,20us between hosts of 2");
}

TEST(Stored, WrongAndFailedRowsToo) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& r) {
    if (r.config.strategy == "zero3") {
      r.ranks.clear();
      r.failure.emplace();
      r.failure->rank = 1;
      r.failure->message = "planted";
    } else if (r.config.strategy == "ddp") {
      r.ranks[0].traffic[0].algo_bytes += 1;
      for (train::RankResult& rank : r.ranks) {
        rank.steps[4].loss = std::numeric_limits<double>::quiet_NaN();
      }
    }
  };
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& r) {
    parity.ok = r.config.strategy != "fsdp";
    parity.first_tensor = "wte.weight";
    parity.detail = "differs";
  };
  const Comparison comparison = run(small_request(), fake);
  expect_same(comparison);
  EXPECT_FALSE(back(comparison).okay);
  EXPECT_NE(plain_words(back(comparison).comparison, {}).find("became NaN at step 5"),
            std::string::npos);
}

TEST(Stored, KeepsTheRequest) {
  const Request request = back(run(five_by_two())).comparison.request;
  EXPECT_EQ(request.worlds, (std::vector<int>{1, 3}));
  EXPECT_EQ(request.strategies.size(), 5u);
  EXPECT_EQ(request.sweep.units.size(), 2u);
  EXPECT_EQ(request.sweep.prefetches, (std::vector<int>{0, 2}));
  EXPECT_EQ(request.sweep.links.size(), 2u);
  EXPECT_FALSE(request.sweep.links[0].has_value());
  EXPECT_EQ(request.peak_tflops, 0.5);
  EXPECT_EQ(request.repetitions, 2);
}

// `run` trains without a reference.
TEST(Stored, RowsThatWereNotCompared) {
  const Request request = small_request();
  FakeEngine fake;
  Comparison comparison;
  comparison.request = request;
  comparison.request.strategies = {"fsdp"};
  comparison.model = models::shape_of(request.base.model);
  const train::StrategyRun one = fake.engine().run(config_for(request, "fsdp", 2), {}, {});
  comparison.blocks.push_back(
      {2, {measured_row(one, sharding::FormulaKind::kFsdp, comparison.model)}, 0});
  expect_same(comparison);
  EXPECT_NE(render_table(TableKind::kBrief, comparison).find(" n/m\n"), std::string::npos);
  EXPECT_EQ(paragraphs(comparison, {}).front().text,
            "Trained without a reference, so the result was not compared.");
}

TEST(Stored, CutShortOrNoJsonIsRefused) {
  const std::string text = stored(run(small_request()));
  for (const std::string& bad : {std::string(), std::string("{"), std::string("hello"),
                                 text.substr(0, text.size() / 2), text + "x"}) {
    const std::string message = refusal(bad);
    EXPECT_NE(message.find("r.json: no JSON, or cut short"), std::string::npos) << message;
  }
}

TEST(Stored, AnotherSchemaIsRefused) {
  Json doc = Json::parse(stored(run(small_request())));
  doc["schema_version"] = 2;
  EXPECT_EQ(refusal(doc.dump()),
            "r.json: schema 2, but this program reads schema 1; use the version that wrote it");
  doc.erase("schema_version");
  EXPECT_NE(refusal(doc.dump()).find("schema_version is missing"), std::string::npos);
  EXPECT_NE(refusal("[1, 2]").find("no result file"), std::string::npos);
}

TEST(Stored, MissingAndMistypedFieldsAreRefusedInOneLine) {
  const Json doc = Json::parse(stored(run(small_request())));
  for (const char* path :
       {"/context", "/config", "/results", "/config/model/name", "/results/0/per_rank",
        "/results/0/tokens_per_s", "/results/1/strategy"}) {
    Json without = doc;
    const Json::json_pointer pointer(path);
    without.at(pointer.parent_pointer()).erase(pointer.back());
    const std::string message = refusal(without.dump());
    EXPECT_EQ(message.rfind("r.json: ", 0), 0u) << path << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    Json mistyped = doc;
    mistyped[pointer] = Json::array({1, "x"});
    EXPECT_EQ(refusal(mistyped.dump()).rfind("r.json: ", 0), 0u) << path;
  }
  Json unknown = doc;
  unknown["results"][0]["strategy"] = "zero9";
  EXPECT_NE(refusal(unknown.dump()).find("zero9"), std::string::npos);
  Json empty = doc;
  empty["results"] = Json::array();
  EXPECT_NE(refusal(empty.dump()).find("no results"), std::string::npos);
  EXPECT_THROW(read_document_file("/no/such/file.json", fake_registry()), UserError);
  EXPECT_THROW(read_document_file("/tmp", fake_registry()), UserError);
  EXPECT_THROW(read_document_file("/dev/null", fake_registry()), UserError);
}

}  // namespace
}  // namespace shardbench::bench
