#include "bench/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/core/error.h"
#include "common/models/config.h"

namespace shardbench::bench {
namespace {

using train::AccumulationOrder;

/// With one micro-batch both orders are the same sum: one reference serves all.
AccumulationOrder order_of(const train::StrategyEntry& entry, const train::RunConfig& config) {
  return config.accumulation > 1 ? entry.order : AccumulationOrder::kRanksFirst;
}

std::vector<AccumulationOrder> orders_of(const Request& request, const train::Registry& registry) {
  std::vector<AccumulationOrder> orders;
  for (const std::string& name : request.strategies) {
    const AccumulationOrder order = order_of(registry.find(name), request.base);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

/// One strategy while its world size is being measured.
struct Lane {
  const train::StrategyEntry* entry = nullptr;
  train::RunConfig config;
  std::vector<train::StrategyRun> runs;
  std::vector<train::Parity> verdicts;

  bool failed() const { return !runs.empty() && (runs.back().failure || runs.back().signal != 0); }
};

class Runner {
 public:
  Runner(const Request& request, const train::Registry& registry, const Engine& engine,
         const Observer& observer)
      : registry_(registry), engine_(engine), observer_(observer) {
    comparison_.request = request;
    comparison_.model = models::shape_of(request.base.model);
    all_runs_ = runs_of(request, registry);
  }

  Comparison run() {
    // All jobs are made first: a request that cannot be met ends here.
    std::vector<std::vector<Lane>> lanes;
    for (int world_size : comparison_.request.worlds) lanes.push_back(lanes_of(world_size));
    for (std::vector<Lane>& block : lanes) {
      if (comparison_.signal != 0) break;
      comparison_.blocks.push_back(run_block(block));
    }
    return std::move(comparison_);
  }

 private:
  std::vector<Lane> lanes_of(int world_size) const {
    std::vector<Lane> lanes;
    for (const std::string& name : row_order(comparison_.request.strategies)) {
      lanes.push_back(
          {&registry_.find(name), config_for(comparison_.request, name, world_size), {}, {}});
    }
    return lanes;
  }

  void begin(const std::string& name) {
    ++runs_done_;
    if (observer_.begin) observer_.begin(name, runs_done_, all_runs_);
  }

  Block run_block(std::vector<Lane>& lanes) {
    Block block;
    block.world_size = lanes.front().config.world_size;
    std::map<AccumulationOrder, train::ReferenceRun> references;
    for (AccumulationOrder order : orders_of(comparison_.request, registry_)) {
      references[order] = run_reference(lanes.front().config, order);
      if (comparison_.signal != 0) break;
    }
    for (int repetition = 0; repetition < comparison_.request.repetitions; ++repetition) {
      for (Lane& lane : lanes) {
        if (comparison_.signal == 0 && !lane.failed()) run_lane(lane, references);
      }
    }
    for (const Lane& lane : lanes) {
      const train::ReferenceRun& reference = references[order_of(*lane.entry, lane.config)];
      block.rows.push_back(row_of(lane, reference));
      if (reference.result) block.reference_distance = reference.result->parameter_rel_distance;
    }
    return block;
  }

  train::ReferenceRun run_reference(train::RunConfig config, AccumulationOrder order) {
    config.inject.reset();  // the fault is planted in the strategies only
    begin(fmt::format("reference W={}", config.world_size));
    train::ReferenceRun reference = engine_.reference(config, order, observer_.progress);
    if (reference.signal != 0) comparison_.signal = reference.signal;
    return reference;
  }

  void run_lane(Lane& lane, const std::map<AccumulationOrder, train::ReferenceRun>& references) {
    const auto reference = references.find(order_of(*lane.entry, lane.config));
    if (reference == references.end() || !reference->second.result) return;
    begin(fmt::format("{} W={}", lane.entry->name, lane.config.world_size));
    lane.runs.push_back(engine_.run(lane.config, observer_.progress, {}));
    const train::StrategyRun& run = lane.runs.back();
    if (run.signal != 0) comparison_.signal = run.signal;
    lane.verdicts.push_back(lane.failed() ? train::Parity{}
                                          : engine_.judge(run, *reference->second.result));
  }

  Row row_of(const Lane& lane, const train::ReferenceRun& reference) const {
    if (!reference.result) {
      return failed_row(lane.config, lane.entry->formula, reference.failure,
                        comparison_.signal != 0 ? comparison_.signal : reference.signal,
                        "no reference");
    }
    if (lane.runs.empty()) {
      return failed_row(lane.config, lane.entry->formula, {}, comparison_.signal, "not run");
    }
    return make_row(lane.runs, lane.verdicts, *reference.result, lane.entry->formula,
                    comparison_.model);
  }

  const train::Registry& registry_;
  const Engine& engine_;
  const Observer& observer_;
  Comparison comparison_;
  int runs_done_ = 0;
  int all_runs_ = 0;
};

}  // namespace

std::string baseline_of(const std::vector<std::string>& strategies) {
  SHARDBENCH_CHECK(!strategies.empty());
  const bool ddp = std::find(strategies.begin(), strategies.end(), "ddp") != strategies.end();
  return ddp ? "ddp" : strategies.front();
}

std::vector<std::string> row_order(const std::vector<std::string>& strategies) {
  std::vector<std::string> order = {baseline_of(strategies)};
  for (const std::string& name : strategies) {
    if (name != order.front()) order.push_back(name);
  }
  return order;
}

int runs_of(const Request& request, const train::Registry& registry) {
  const std::size_t per_world =
      orders_of(request, registry).size() +
      request.strategies.size() * static_cast<std::size_t>(request.repetitions);
  return static_cast<int>(per_world * request.worlds.size());
}

Comparison compare(const Request& request, const train::Registry& registry, const Engine& engine,
                   const Observer& observer) {
  return Runner(request, registry, engine, observer).run();
}

int exit_code(const Row& row) {
  if (row.signal != 0) return 128 + row.signal;
  if (row.failure) {
    switch (row.failure->reason) {
      case comm::AbortRecord::Reason::kLost:
      case comm::AbortRecord::Reason::kTimeout:
        return 3;
      case comm::AbortRecord::Reason::kThrew:
      case comm::AbortRecord::Reason::kRequested:
        return 1;
    }
  }
  return row.right() && row.traffic_error.empty() ? 0 : 1;
}

int exit_code(const Comparison& comparison) {
  if (comparison.signal != 0) return 128 + comparison.signal;
  int code = 0;
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) code = std::max(code, exit_code(row));
  }
  return code;
}

}  // namespace shardbench::bench
