#include "tests/bench/fake_engine.h"

#include <fmt/format.h>

#include "common/models/config.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::bench {
namespace {

using memory::Category;

std::size_t at(Category category) { return static_cast<std::size_t>(category); }

train::MemoryReport fake_memory(const sharding::FormulaMemory& formula) {
  train::MemoryReport memory;
  memory::CategoryBytes& between = memory.between_steps;
  between[at(Category::kParam)] = formula.param;
  between[at(Category::kGrad)] = formula.grad;
  between[at(Category::kOptimizer)] = formula.optimizer + formula.padding;
  memory.padding = formula.padding;
  memory.at_peak = between;
  memory.at_peak[at(Category::kActivation)] = 3 << 20;
  memory.at_peak[at(Category::kTemp)] = 1 << 20;
  memory.peak_by_category = memory.at_peak;
  memory.peak = memory::total(memory.at_peak);
  memory.first_step_peak = memory.peak + 1000;
  memory.peak_phase = Phase::kBackward;
  memory.peak_unit = "h.1";
  memory.rss_start = 100 << 20;
  memory.rss_peak = 200 << 20;
  memory.pss_peak = 150 << 20;
  return memory;
}

/// One call per unit, of equal size, 1 ms together; one in all where there are no units.
void add_calls(train::RankResult& result, const sharding::FormulaTraffic& formula,
               const train::RunConfig& config, const sharding::ModelShape& model) {
  comm::CallRecord call;
  call.phase = formula.phase;
  call.kind = formula.kind;
  if (formula.kind == comm::CollectiveKind::kAllReduce) {
    call.label = "bucket 0";
    call.finished_ns = 1'000'000;
    result.calls.push_back(call);
    return;
  }
  const std::vector<sharding::UnitShape> units = sharding::plan_units(model, config.options.units);
  const auto count = static_cast<std::int64_t>(units.size());
  for (const sharding::UnitShape& unit : units) {
    call.label = unit.name;
    call.payload_bytes = formula.payload_bytes / count;
    call.algo_bytes = formula.algo_bytes / count;
    call.finished_ns = 1'000'000 / count;
    result.calls.push_back(call);
  }
}

}  // namespace

train::RankResult fake_rank(const train::RunConfig& config, sharding::FormulaKind kind, int rank,
                            std::int64_t warmup_ns, std::int64_t step_ns) {
  const sharding::ModelShape model = models::shape_of(config.model);
  const sharding::FormulaInput input = formula_input(config, model);
  train::RankResult result;
  result.rank = rank;
  result.pid = 1000 + rank;
  for (int s = 0; s < config.warmup + config.steps; ++s) {
    train::StepRecord step;
    step.loss = 5.0 - 0.1 * s;
    step.gradient_norm = 2.0;
    step.minor_faults = 12;
    step.system_allocations = 3;
    step.step_ns = s < config.warmup ? warmup_ns : step_ns;
    step.forward_ns = step.step_ns * 3 / 10;
    step.backward_ns = step.step_ns * 6 / 10;
    step.optimizer_ns = step.step_ns / 10;
    step.comm_ns = config.world_size == 1 ? 0 : step.step_ns / 5;
    step.exposed_ns = step.comm_ns / 4;
    step.peer_wait_ns = step.comm_ns / 8;
    result.steps.push_back(step);
  }
  result.memory = fake_memory(sharding::formula_memory(kind, input, rank));
  for (const sharding::FormulaTraffic& formula : sharding::formula_traffic(kind, input, rank)) {
    comm::TrafficEntry entry;
    entry.phase = formula.phase;
    entry.kind = formula.kind;
    entry.calls = formula.calls;
    entry.payload_bytes = formula.payload_bytes;
    entry.algo_bytes = formula.algo_bytes;
    entry.wire = {formula.algo_bytes, formula.algo_bytes, 0};
    result.traffic.push_back(entry);
    add_calls(result, formula, config, model);
  }
  result.replicated = kind == sharding::FormulaKind::kDdp;
  return result;
}

Engine FakeEngine::engine() {
  Engine made;
  made.run = [this](const train::RunConfig& config, const train::Progress& progress,
                    const train::RankObserver&) {
    log.push_back(fmt::format("{}/{}", config.strategy, config.world_size));
    jobs.push_back(config);
    train::StrategyRun run;
    run.config = config;
    const sharding::FormulaKind kind = fake_registry().find(config.strategy).formula;
    for (int rank = 0; rank < config.world_size; ++rank) {
      const std::int64_t ns = step_ns_of ? step_ns_of(config) : step_ns;
      run.ranks.push_back(fake_rank(config, kind, rank, warmup_ns, ns));
    }
    if (progress) progress(config.warmup + config.steps, config.warmup + config.steps);
    if (spoil) spoil(run);
    return run;
  };
  made.reference = [this](const train::RunConfig& config, train::AccumulationOrder order,
                          const train::Progress&) {
    const bool ranks_first = order == train::AccumulationOrder::kRanksFirst;
    log.push_back(
        fmt::format("reference/{}/{}", config.world_size, ranks_first ? "ranks" : "micro"));
    reference_jobs.push_back(config);
    train::ReferenceRun run;
    run.result.emplace();
    run.result->gradient_max_rel_diff = 3.1e-7;
    run.result->parameter_rel_distance = 2e-6;
    if (spoil_reference) spoil_reference(run);
    return run;
  };
  made.limit = [this](const train::RunConfig& config) {
    log.push_back(fmt::format("limit/{}/batch {}", config.world_size, config.batch));
    train::LimitRun run;
    if (limits.empty()) return run;
    run.pieces = limits.front();
    if (limits.size() > 1) limits.erase(limits.begin());
    return run;
  };
  made.judge = [this](const train::StrategyRun& run, const train::ReferenceResult&) {
    train::Parity parity;
    parity.ok = parity.bit_equal = true;
    parity.hash = 0x0123456789abcdef;
    if (spoil_parity) spoil_parity(parity, run);
    return parity;
  };
  return made;
}

train::Registry fake_registry() {
  using train::AccumulationOrder;
  train::Registry registry;
  registry.add({"ddp",
                "copies everywhere",
                AccumulationOrder::kMicroBatchesFirst,
                sharding::FormulaKind::kDdp,
                {}});
  registry.add({"zero1",
                "optimizer state at owners",
                AccumulationOrder::kMicroBatchesFirst,
                sharding::FormulaKind::kZero1,
                {}});
  registry.add({"zero2",
                "gradients and optimizer state at owners",
                AccumulationOrder::kRanksFirst,
                sharding::FormulaKind::kZero2,
                {}});
  registry.add({"zero3",
                "whole tensors at owners",
                AccumulationOrder::kRanksFirst,
                sharding::FormulaKind::kZero3,
                {}});
  registry.add({"fsdp",
                "rows of every tensor",
                AccumulationOrder::kRanksFirst,
                sharding::FormulaKind::kFsdp,
                {}});
  return registry;
}

Request small_request() {
  Request request;
  request.base.model.name = "tiny";
  request.base.model.layers = 2;
  request.base.model.heads = 2;
  request.base.model.hidden = 256;
  request.base.model.vocab = 64;
  request.base.model.context = 8;
  request.base.seq = 8;
  request.base.data = "synthetic";
  request.strategies = {"ddp", "zero3", "fsdp"};
  request.worlds = {2};
  return request;
}

}  // namespace shardbench::bench
