#include "bench/compare/document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using Json = nlohmann::ordered_json;

Json document_of(const Request& request, FakeEngine fake = {}) {
  DocumentContext context;
  context.args = {"shardbench", "compare"};
  context.extra = {{"purpose", "test"}, {"seed", "99"}};
  context.torch_version = "2.15.0";
  return document(compare(request, fake_registry(), fake.engine()), context);
}

TEST(Document, HasTheContractsFields) {
  Request request = small_request();
  request.worlds = {3};
  const Json doc = document_of(request);
  EXPECT_EQ(doc["schema_version"], 1);
  EXPECT_EQ(doc["okay"], true);
  ASSERT_EQ(doc["results"].size(), 3u);
  const Json& fsdp = doc["results"][2];
  EXPECT_EQ(fsdp["name"], "fsdp/w3/block");
  EXPECT_EQ(fsdp["strategy"], "fsdp");
  EXPECT_EQ(fsdp["world_size"], 3);
  EXPECT_EQ(fsdp["run_type"], "iteration");
  EXPECT_EQ(fsdp["step_time_ns"]["median"], 100'000'000);
  EXPECT_EQ(fsdp["step_time_ns"]["times"].size(), 10u);
  EXPECT_EQ(fsdp["phase_time_ns"]["backward"], 60'000'000);
  EXPECT_EQ(fsdp["comm_time_ns"], 20'000'000);
  EXPECT_EQ(fsdp["exposed_time_ns"], 5'000'000);
  EXPECT_DOUBLE_EQ(fsdp["tokens_per_s"].get<double>(), 960);
  EXPECT_DOUBLE_EQ(fsdp["tokens_per_s_per_rank"].get<double>(), 320);
  EXPECT_EQ(fsdp["losses"].size(), 12u);
  EXPECT_EQ(fsdp["grad_norms"].size(), 12u);
  EXPECT_EQ(fsdp["parameter_hash"], "0123456789abcdef");
  EXPECT_EQ(fsdp["parity"]["ok"], true);
  EXPECT_EQ(fsdp["parity"]["bit_equal"], true);
  EXPECT_EQ(fsdp["parity"]["first_tensor"], "");
  EXPECT_DOUBLE_EQ(fsdp["parity"]["grad_max_rel_diff"].get<double>(), 3.1e-7);
  EXPECT_EQ(fsdp["error_occurred"], false);
  EXPECT_EQ(fsdp["relative"]["baseline"], "ddp");
  EXPECT_NEAR(fsdp["relative"]["sent"].get<double>(), 1.5, 0.01);
  for (const char* name : {"rank", "persistent_bytes", "peak_bytes", "sent_bytes", "wait_ns"}) {
    EXPECT_TRUE(fsdp["per_rank"][2].contains(name)) << name;
  }
  EXPECT_TRUE(fsdp["predicted"].contains("unsharded_bound_bytes"));
  EXPECT_FALSE(doc["results"][0]["predicted"].contains("unsharded_bound_bytes"));
}

TEST(Document, MemorySplitSumsToThePeak) {
  const Json doc = document_of(small_request());
  for (const Json& result : doc["results"]) {
    const Json& memory = result["memory_bytes"];
    std::int64_t sum = 0;
    for (const Json& part : memory["at_peak"]) sum += part.get<std::int64_t>();
    EXPECT_EQ(sum, memory["peak"].get<std::int64_t>());
    EXPECT_EQ(memory["persistent"].get<std::int64_t>(),
              memory["param"].get<std::int64_t>() + memory["grad"].get<std::int64_t>() +
                  memory["optimizer"].get<std::int64_t>());
    for (const char* name :
         {"gathered_param", "unsharded_grad", "activation", "comm_buffer", "temp", "other",
          "peak_phase", "peak_unit", "rss_peak", "rss_start", "pss_peak", "formula_states"}) {
      EXPECT_TRUE(memory.contains(name)) << name;
    }
  }
}

TEST(Document, TrafficPerRankPhaseAndKind) {
  Request request = small_request();
  request.worlds = {4};
  const Json doc = document_of(request);
  for (const Json& result : doc["results"]) {
    std::vector<std::int64_t> sent(4);
    for (const Json& entry : result["traffic"]) {
      EXPECT_EQ(entry["algo_bytes"], entry["formula_bytes"]);
      EXPECT_EQ(entry["algo_bytes"], entry["wire_bytes"]);
      for (const char* name :
           {"phase", "kind", "calls", "payload_bytes", "wire_received_bytes", "staging_bytes"}) {
        EXPECT_TRUE(entry.contains(name)) << name;
      }
      sent[entry["rank"].get<std::size_t>()] += entry["algo_bytes"].get<std::int64_t>();
    }
    for (const Json& rank : result["per_rank"]) {
      EXPECT_EQ(rank["sent_bytes"].get<std::int64_t>(), sent[rank["rank"].get<std::size_t>()]);
    }
  }
}

TEST(Document, UncountedWireBytesAreLeftOut) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) {
      for (comm::TrafficEntry& entry : rank.traffic) entry.wire = {-1, -1, -1};
    }
  };
  const Json doc = document_of(small_request(), fake);
  EXPECT_FALSE(doc["results"][0]["traffic"][0].contains("wire_bytes"));
  EXPECT_EQ(doc["okay"], true);
}

TEST(Document, WrongRowsHaveNoTimes) {
  FakeEngine fake;
  fake.spoil_parity = [](train::Parity& parity, const train::StrategyRun& run) {
    if (run.config.strategy != "zero3") return;
    parity.ok = parity.bit_equal = false;
    parity.first_tensor = "wte.weight";
    parity.detail = "differs";
  };
  const Json doc = document_of(small_request(), fake);
  const Json& zero3 = doc["results"][1];
  EXPECT_EQ(doc["okay"], false);
  EXPECT_FALSE(zero3.contains("step_time_ns"));
  EXPECT_FALSE(zero3.contains("tokens_per_s"));
  EXPECT_EQ(zero3["parity"]["first_tensor"], "wte.weight");
  EXPECT_EQ(zero3["error_occurred"], true);
  EXPECT_EQ(zero3["error_message"], "differs");
}

TEST(Document, FailedRowsSayWhy) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    if (run.config.strategy != "fsdp") return;
    run.ranks.clear();
    run.failure.emplace();
    run.failure->rank = 1;
    run.failure->reason = comm::AbortRecord::Reason::kLost;
    run.failure->phase = Phase::kBackward;
  };
  const Json doc = document_of(small_request(), fake);
  EXPECT_EQ(doc["results"][2]["error_message"], "rank 1 was lost in backward");
  EXPECT_FALSE(doc["results"][2].contains("memory_bytes"));
  EXPECT_FALSE(doc["results"][2].contains("parity"));
}

TEST(Document, ContextMergesNotesButKeepsItsOwnKeys) {
  Request request = small_request();
  request.base.link = comm::LinkModel{{1.25e8, std::chrono::microseconds(20)}};
  request.base.seed = 7;
  const Json doc = document_of(request);
  const Json& context = doc["context"];
  EXPECT_EQ(context["purpose"], "test");
  EXPECT_EQ(context["seed"], 7);
  EXPECT_EQ(context["torch_version"], "2.15.0");
  EXPECT_EQ(context["link"]["latency_ns"], 20'000);
  EXPECT_EQ(context["link"]["bandwidth_bytes_per_s"], 1.25e8);
  for (const char* name : {"date", "host_name", "executable", "git_sha", "build_type", "compiler",
                           "num_cpus", "load_avg", "backend", "threads_per_rank", "args"}) {
    EXPECT_TRUE(context.contains(name)) << name;
  }
  EXPECT_EQ(doc["config"]["model"]["params"], 1'598'464);
  EXPECT_EQ(doc["config"]["optimizer"]["name"], "adamw");
}

TEST(Document, SweptValuesStandWithEachResult) {
  Request request = small_request();
  request.strategies = {"fsdp"};
  request.sweep.units = {sharding::UnitPolicy::parse("block"),
                         sharding::UnitPolicy::parse("tensor")};
  request.sweep.links = {std::nullopt, comm::LinkModel::parse("1Gbit,20us")};
  const Json doc = document_of(request);
  ASSERT_EQ(doc["results"].size(), 4u);
  EXPECT_EQ(doc["config"]["sweep"]["units"], (Json{"block", "tensor"}));
  EXPECT_EQ(doc["config"]["sweep"]["link"], (Json{"none", "1Gbit,20us"}));
  EXPECT_EQ(doc["config"]["units"], "block");
  const Json& last = doc["results"][3];
  EXPECT_EQ(last["name"], "fsdp/w2/tensor/link1Gbit");
  EXPECT_EQ(last["run_name"], last["name"]);
  EXPECT_EQ(last["config"]["units"], "tensor");
  EXPECT_EQ(last["config"]["link"], "1Gbit,20us");
  EXPECT_FALSE(last["config"].contains("micro_batch"));
  EXPECT_FALSE(document_of(small_request())["results"][0].contains("config"));
  EXPECT_FALSE(document_of(small_request())["config"].contains("sweep"));
}

TEST(Document, CallsByUnitDtypesAndThePeaks) {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    for (train::RankResult& rank : run.ranks) rank.memory.init_peak = 12345;
  };
  const Json doc = document_of(small_request(), fake);
  const Json& fsdp = doc["results"][2];
  EXPECT_EQ(fsdp["traffic"][0]["dtype"], "fp32");
  ASSERT_EQ(fsdp["calls"].size(), 9u);
  EXPECT_EQ(fsdp["calls"][1]["label"], "h.0");
  EXPECT_EQ(fsdp["calls"][1]["kind"], "all_gather");
  EXPECT_EQ(fsdp["memory_bytes"]["init_peak"], 12345);
  EXPECT_EQ(fsdp["memory_bytes"]["first_step_peak"].get<std::int64_t>(),
            fsdp["memory_bytes"]["peak"].get<std::int64_t>() + 1000);
  EXPECT_EQ(fsdp["per_rank"][1]["init_peak_bytes"], 12345);
  EXPECT_EQ(fsdp["per_rank"][1]["rss_start_bytes"], 100 << 20);
  EXPECT_FALSE(document_of(small_request())["results"][0]["memory_bytes"].contains("init_peak"));
}

TEST(Document, SeveralRepetitionsAreAnAggregate) {
  Request request = small_request();
  request.repetitions = 3;
  const Json doc = document_of(request);
  EXPECT_EQ(doc["results"][0]["run_type"], "aggregate");
  EXPECT_EQ(doc["results"][0]["aggregate_name"], "median");
  EXPECT_EQ(doc["results"][0]["step_time_ns"]["times"].size(), 30u);
}

}  // namespace
}  // namespace shardbench::bench
