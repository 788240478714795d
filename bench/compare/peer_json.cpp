#include "bench/compare/peer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/compare/request.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

json per_rank_json(const PeerRow& row) {
  json out = json::array();
  for (const PeerRank& rank : row.ranks) {
    out.push_back({{"rank", rank.rank},
                   {"pid", rank.pid},
                   {"step_ns", rank.step_ns},
                   {"losses", rank.losses},
                   {"rss_start_bytes", rank.rss_start},
                   {"rss_peak_bytes", rank.rss_peak},
                   {"pss_bytes", rank.pss}});
  }
  return out;
}

json step_json(const Summary& step) {
  json out = {{"median", std::llround(step.median)},
              {"mean", std::llround(step.mean)},
              {"min", std::llround(step.min)},
              {"max", std::llround(step.max)},
              {"times", step.times}};
  if (step.ci95_half >= 0) out["ci95_half"] = std::llround(step.ci95_half);
  return out;
}

/// What ours has over what the peer has: below 1 is less.
json relative_json(const PeerRow& row, const Row& ours) {
  return {{"baseline", row.peer},
          {"time", ours.step.median / row.step.median},
          {"rss_peak", ours.rss_peak().max / row.rss_peak()},
          {"pss_peak", ours.pss_peak().max / row.pss()}};
}

}  // namespace

const Row* counterpart_row(const Block& block, const PeerRow& peer) {
  for (const Row& row : block.rows) {
    if (row.strategy() == peer.kind().counterpart && row.right()) return &row;
  }
  return nullptr;
}

json peer_json(const PeerRow& row, const train::RunConfig& config, const Row* ours) {
  const PeerKind& kind = row.kind();
  json out = {{"name", fmt::format("{}/w{}/b{}", row.peer, config.world_size, config.batch)},
              {"peer", row.peer},
              {"title", kind.title},
              {"framework", kind.framework},
              {"counterpart", kind.counterpart},
              {"world_size", config.world_size},
              {"micro_batch", config.batch},
              {"repetitions", row.repetitions},
              {"error_occurred", !row.right()},
              {"error_message", row.reason}};
  if (!row.measured()) return out;
  out["versions"] = row.versions;
  out["losses"] = row.losses;
  const LossBounds bounds = loss_bounds(config.options.compute_dtype);
  out["parity"] = {{"ok", row.right()},
                   {"reference", "A: each rank's micro-batch by itself, one process"},
                   {"first_loss_rel_diff", row.first_loss_diff},
                   {"max_loss_rel_diff", row.loss_diff},
                   {"worst_step", row.worst_step},
                   {"first_loss_bound", bounds.first},
                   {"loss_bound", bounds.later}};
  out["memory_bytes"] = {{"rss_peak", row.rss_peak()}, {"pss_peak", row.pss()}};
  out["per_rank"] = per_rank_json(row);
  if (!row.right()) {  // no time without a right answer
    for (json& rank : out["per_rank"]) rank.erase("step_ns");
    return out;
  }
  out["iterations"] = row.step.times.size();
  out["step_time_ns"] = step_json(row.step);
  json repetitions = json::array();
  for (const auto& times : row.by_repetition) repetitions.push_back({{"times", times}});
  out["by_repetition"] = std::move(repetitions);
  out["tokens_per_s"] = row.tokens_per_s;
  if (ours != nullptr) out["relative"] = relative_json(row, *ours);
  return out;
}

PeerRank read_peer_rank(const json& stored) {
  PeerRank rank;
  rank.rank = stored.at("rank");
  rank.pid = stored.value("pid", std::int64_t{0});
  rank.step_ns = stored.value("step_ns", std::vector<std::int64_t>{});
  for (const json& loss : stored.at("losses")) {
    rank.losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
  }
  rank.rss_start = stored.at("rss_start_bytes");
  rank.rss_peak = stored.at("rss_peak_bytes");
  rank.pss = stored.at("pss_bytes");
  return rank;
}

PeerRow read_peer(const json& stored, const train::RunConfig& config) {
  PeerRow row;
  row.peer = stored.at("peer");
  peer_kind(row.peer);  // an unknown one is refused
  row.repetitions = stored.value("repetitions", 1);
  row.reason = stored.at("error_message");
  if (!stored.contains("per_rank")) {
    row.state = Row::State::kFailed;
    return row;
  }
  for (const json& rank : stored.at("per_rank")) row.ranks.push_back(read_peer_rank(rank));
  if (row.ranks.empty()) throw UserError::format("peer {} has no ranks", row.peer);
  row.versions = stored.value("versions", std::map<std::string, std::string>{});
  for (const json& loss : stored.at("losses")) {
    row.losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
  }
  const json& parity = stored.at("parity");
  const auto number = [&](const char* key) {
    return parity.at(key).is_null() ? HUGE_VAL : parity.at(key).get<double>();
  };
  row.first_loss_diff = number("first_loss_rel_diff");
  row.loss_diff = number("max_loss_rel_diff");
  row.worst_step = parity.at("worst_step");
  if (!parity.at("ok").get<bool>()) {
    row.state = Row::State::kWrong;
    return row;
  }
  row.reason.clear();
  const auto times = stored.at("step_time_ns").at("times").get<std::vector<std::int64_t>>();
  if (times.empty() || *std::min_element(times.begin(), times.end()) <= 0) {
    throw UserError::format("peer {} has no step times above 0", row.peer);
  }
  row.step = summarize(times);
  for (const json& repetition : stored.value("by_repetition", json::array())) {
    row.by_repetition.push_back(repetition.at("times").get<std::vector<std::int64_t>>());
  }
  row.tokens_per_s = tokens_per_second(tokens_per_step(config), row.step.median);
  return row;
}

}  // namespace shardbench::bench
