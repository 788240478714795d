#include "bench/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "bench/compare/tuning.h"
#include "common/core/error.h"
#include "common/models/config.h"

namespace shardbench::bench {
namespace {

using train::AccumulationOrder;

/// With one micro-batch both orders are the same sum, and of gradients that travel as they are
/// kept: one reference serves all.
AccumulationOrder order_of(const train::StrategyEntry& entry, const train::RunConfig& config) {
  const bool differ = config.accumulation > 1 || config.options.reduce_dtype != DType::kFloat32;
  return differ ? entry.order : AccumulationOrder::kRanksFirst;
}

std::vector<AccumulationOrder> orders_of(const Request& request, const train::Registry& registry) {
  std::vector<AccumulationOrder> orders;
  for (const std::string& name : request.strategies) {
    const AccumulationOrder order = order_of(registry.find(name), request.base);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

/// One row while its world size is being measured.
struct Lane {
  const train::StrategyEntry* entry = nullptr;
  train::RunConfig config;
  std::vector<train::StrategyRun> runs;
  std::vector<train::Parity> verdicts;

  bool failed() const { return !runs.empty() && (runs.back().failure || runs.back().signal != 0); }
};

/// A peer's row.
struct PeerLane {
  std::string peer;
  std::vector<PeerRun> runs;

  bool failed() const { return !runs.empty() && runs.back().failed(); }
};

/// The rows of one block.
struct Lanes {
  std::vector<Lane> rows;
  std::vector<PeerLane> peers;

  const train::RunConfig& config() const { return rows.front().config; }
};

/// What the reference depends on within one world size: blocks alike in these share it.
struct Work {
  AccumulationOrder order;
  std::int64_t batch;

  friend auto operator<=>(const Work&, const Work&) = default;
};
using References = std::map<Work, train::ReferenceRun>;

/// The parts of a step by themselves, by batch; of several measurements the better of each part.
class Limits {
 public:
  void add(std::int64_t batch, const train::LimitPieces& pieces) {
    const auto [place, is_new] = by_batch_.try_emplace(batch, pieces);
    if (is_new) return;
    train::LimitPieces& best = place->second;
    best.forward_ns = std::min(best.forward_ns, pieces.forward_ns);
    best.backward_ns = std::min(best.backward_ns, pieces.backward_ns);
    best.optimizer_ns_per_element =
        std::min(best.optimizer_ns_per_element, pieces.optimizer_ns_per_element);
    best.copied_bytes_per_ns = std::max(best.copied_bytes_per_ns, pieces.copied_bytes_per_ns);
  }
  std::optional<train::LimitPieces> of(std::int64_t batch) const {
    const auto found = by_batch_.find(batch);
    if (found == by_batch_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::int64_t, train::LimitPieces> by_batch_;
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
    std::vector<std::vector<Lanes>> worlds;
    for (const train::RunConfig& config : blocks_of(comparison_.request)) {
      if (worlds.empty() || worlds.back().front().config().world_size != config.world_size) {
        worlds.emplace_back();
      }
      worlds.back().push_back(lanes_of(config));
    }
    tune_operations(worlds);
    for (std::vector<Lanes>& blocks : worlds) {
      if (comparison_.signal != 0 && !comparison_.blocks.empty()) break;
      run_world(blocks);
    }
    return std::move(comparison_);
  }

 private:
  /// Once for all: choices may not depend on what is compared.
  void tune_operations(std::vector<std::vector<Lanes>>& worlds) {
    ops::TuningTable& table = comparison_.request.base.tuning;
    if (table.mode != ops::TuneMode::kOn) return;
    if (observer_.tuning) observer_.tuning();
    comparison_.signal = tune(comparison_.request, engine_);
    if (observer_.tuned && comparison_.signal == 0) observer_.tuned(table);
    for (std::vector<Lanes>& blocks : worlds) {
      for (Lanes& lanes : blocks) {
        for (Lane& lane : lanes.rows) lane.config.tuning = table;
      }
    }
  }

  Lanes lanes_of(const train::RunConfig& config) const {
    Lanes lanes;
    for (const std::string& name : row_order(comparison_.request.strategies)) {
      lanes.rows.push_back({&registry_.find(name), config, {}, {}});
      lanes.rows.back().config.strategy = name;
    }
    for (const std::string& peer : comparison_.request.peers) lanes.peers.push_back({peer, {}});
    return lanes;
  }

  void begin(const std::string& name) {
    ++runs_done_;
    if (observer_.begin) observer_.begin(name, runs_done_, all_runs_);
  }

  void run_world(std::vector<Lanes>& blocks) {
    const References references = run_references(blocks);
    Limits limits;
    for (int repetition = 0; repetition < comparison_.request.repetitions; ++repetition) {
      if (comparison_.request.limit) measure_limits(blocks, limits);
      for (Lanes& lanes : blocks) {
        for (Lane& lane : lanes.rows) {
          if (comparison_.signal == 0 && !lane.failed()) run_lane(lane, references);
        }
        for (PeerLane& lane : lanes.peers) {
          if (comparison_.signal == 0 && !lane.failed()) run_peer(lane, lanes, references);
        }
      }
    }
    for (const Lanes& lanes : blocks) {
      comparison_.blocks.push_back(block_of(lanes, references));
      for (Row& row : comparison_.blocks.back().rows) row.limit = limits.of(row.config.batch);
    }
  }

  /// Once for every batch: the rest of what blocks differ in is no part of the limit.
  void measure_limits(const std::vector<Lanes>& blocks, Limits& limits) {
    std::set<std::int64_t> measured;
    for (const Lanes& lanes : blocks) {
      const train::RunConfig& config = lanes.config();
      if (comparison_.signal != 0 || !measured.insert(config.batch).second) continue;
      begin(fmt::format("limit W={}", config.world_size));
      const train::LimitRun run = engine_.limit(config);
      if (run.signal != 0) comparison_.signal = run.signal;
      if (run.pieces) limits.add(config.batch, *run.pieces);
    }
  }

  References run_references(const std::vector<Lanes>& blocks) {
    References references;
    for (const Lanes& lanes : blocks) {
      const train::RunConfig& config = lanes.config();
      for (AccumulationOrder order : orders_of(comparison_.request, registry_)) {
        const Work work{order, config.batch};
        if (comparison_.signal != 0 || references.contains(work)) continue;
        references[work] = run_reference(config, order);
      }
    }
    return references;
  }

  train::ReferenceRun run_reference(train::RunConfig config, AccumulationOrder order) {
    // Faults are planted in the strategies only; where a rank's data end is part of the work.
    if (config.inject && config.inject->kind != train::Injection::Kind::kShort) {
      config.inject.reset();
    }
    const bool batches = varies(comparison_.request, Axis::kBatch);
    begin(fmt::format("reference W={}{}", config.world_size,
                      batches ? fmt::format(", batch {}", config.batch) : std::string()));
    train::ReferenceRun reference = engine_.reference(config, order, observer_.progress);
    if (reference.signal != 0) comparison_.signal = reference.signal;
    return reference;
  }

  const train::ReferenceRun* reference_of(const Lane& lane, const References& references) const {
    const auto found = references.find({order_of(*lane.entry, lane.config), lane.config.batch});
    return found == references.end() ? nullptr : &found->second;
  }

  void run_lane(Lane& lane, const References& references) {
    const train::ReferenceRun* reference = reference_of(lane, references);
    if (reference == nullptr || !reference->result) return;
    begin(lane.entry->name + " " + block_title(comparison_.request, lane.config));
    lane.runs.push_back(engine_.run(lane.config, observer_.progress, {}));
    const train::StrategyRun& run = lane.runs.back();
    if (run.signal != 0) comparison_.signal = run.signal;
    lane.verdicts.push_back(lane.failed() ? train::Parity{}
                                          : engine_.judge(run, *reference->result));
  }

  /// Our row that a peer stands under: it has the peer's job and reference.
  static const Lane& counterpart_of(const PeerLane& peer, const Lanes& lanes) {
    const auto found = std::find_if(lanes.rows.begin(), lanes.rows.end(), [&](const Lane& lane) {
      return lane.entry->name == peer_kind(peer.peer).counterpart;
    });
    SHARDBENCH_CHECK(found != lanes.rows.end(), "peer {} stands under no row", peer.peer);
    return *found;
  }

  void run_peer(PeerLane& lane, const Lanes& lanes, const References& references) {
    const Lane& ours = counterpart_of(lane, lanes);
    const train::ReferenceRun* reference = reference_of(ours, references);
    if (reference == nullptr || !reference->result) return;
    const PeerKind& kind = peer_kind(lane.peer);
    begin(kind.title + " " + block_title(comparison_.request, ours.config));
    lane.runs.push_back(engine_.run_peer(kind, ours.config, observer_.progress));
    if (lane.runs.back().signal != 0) comparison_.signal = lane.runs.back().signal;
  }

  PeerRow peer_row_of(const PeerLane& lane, const Lanes& lanes,
                      const References& references) const {
    const Lane& ours = counterpart_of(lane, lanes);
    const train::ReferenceRun* reference = reference_of(ours, references);
    const bool has_reference = reference != nullptr && reference->result.has_value();
    if (!has_reference || lane.runs.empty()) {
      return failed_peer_row(lane.peer, comparison_.signal,
                             has_reference ? "not run" : "no reference");
    }
    return make_peer_row(lane.peer, ours.config, lane.runs, reference->result->steps);
  }

  Block block_of(const Lanes& lanes, const References& references) const {
    Block block;
    block.world_size = lanes.config().world_size;
    for (const PeerLane& lane : lanes.peers) {
      block.peers.push_back(peer_row_of(lane, lanes, references));
    }
    for (const Lane& lane : lanes.rows) {
      const train::ReferenceRun* reference = reference_of(lane, references);
      block.rows.push_back(row_of(lane, reference));
      if (reference != nullptr && reference->result) {
        block.reference_distance = reference->result->parameter_rel_distance;
      }
    }
    return block;
  }

  Row row_of(const Lane& lane, const train::ReferenceRun* reference) const {
    if (reference == nullptr || !reference->result) {
      const train::ReferenceRun none;
      const train::ReferenceRun& why = reference == nullptr ? none : *reference;
      return failed_row(lane.config, lane.entry->formula, why.failure,
                        comparison_.signal != 0 ? comparison_.signal : why.signal, "no reference");
    }
    if (lane.runs.empty()) {
      return failed_row(lane.config, lane.entry->formula, {}, comparison_.signal, "not run");
    }
    return make_row(lane.runs, lane.verdicts, *reference->result, lane.entry->formula,
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

int references_of(const Request& request, const train::Registry& registry) {
  const std::size_t works = request.worlds.size() *
                            std::max<std::size_t>(1, request.sweep.batches.size()) *
                            orders_of(request, registry).size();
  return static_cast<int>(works);
}

int runs_of(const Request& request, const train::Registry& registry) {
  const std::size_t rows =
      blocks_of(request).size() * (request.strategies.size() + request.peers.size());
  const std::size_t limits =
      request.limit ? request.worlds.size() * std::max<std::size_t>(1, request.sweep.batches.size())
                    : 0;
  return references_of(request, registry) + static_cast<int>(rows + limits) * request.repetitions;
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
    for (const PeerRow& row : block.peers) code = std::max(code, exit_code(row));
  }
  return code;
}

}  // namespace shardbench::bench
