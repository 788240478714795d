#include "bench/compare/traffic.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

namespace shardbench::bench {
namespace {

using Key = std::pair<Phase, comm::CollectiveKind>;

void add_rank(std::vector<TrafficRow>& rows, const train::RankResult& rank,
              const std::vector<sharding::FormulaTraffic>& formula) {
  std::map<Key, TrafficRow> by_key;
  const auto entry = [&](Phase phase, comm::CollectiveKind kind) -> TrafficRow& {
    TrafficRow& row = by_key[{phase, kind}];
    row.rank = rank.rank;
    row.phase = phase;
    row.kind = kind;
    if (phase != Phase::kMetrics && !row.formula_bytes) row.formula_bytes = 0;
    return row;
  };
  for (const comm::TrafficEntry& counted : rank.traffic) {
    TrafficRow& row = entry(counted.phase, counted.kind);
    row.calls = counted.calls;
    row.payload_bytes = counted.payload_bytes;
    row.algo_bytes = counted.algo_bytes;
    row.wire = counted.wire;
  }
  for (const comm::CallRecord& call : rank.calls) {
    const auto found = by_key.find({call.phase, call.kind});
    if (found == by_key.end()) continue;
    const std::string dtype(name_of(call.dtype));
    std::string& known = found->second.dtype;
    known = known.empty() || known == dtype ? dtype : "mixed";
  }
  for (const sharding::FormulaTraffic& calculated : formula) {
    TrafficRow& row = entry(calculated.phase, calculated.kind);
    row.formula_bytes = calculated.algo_bytes;
    row.formula_calls = calculated.calls;
  }
  for (const auto& [key, row] : by_key) rows.push_back(row);
}

}  // namespace

std::vector<TrafficRow> traffic_rows(const std::vector<train::RankResult>& ranks,
                                     sharding::FormulaKind kind,
                                     const sharding::FormulaInput& input) {
  std::vector<TrafficRow> rows;
  for (const train::RankResult& rank : ranks) {
    add_rank(rows, rank, sharding::formula_traffic(kind, input, rank.rank));
  }
  return rows;
}

std::string first_disagreement(const std::vector<TrafficRow>& rows, bool may_hand_on) {
  std::map<Key, std::int64_t> excess;  // wire beyond algo bytes, of all ranks
  for (const TrafficRow& row : rows) {
    excess[{row.phase, row.kind}] += row.wire.sent - row.algo_bytes;
  }
  for (const TrafficRow& row : rows) {
    const bool handed_on = may_hand_on && row.wire_counted() && excess[{row.phase, row.kind}] == 0;
    if (row.agrees() || (handed_on && row.algo_bytes == row.formula_bytes)) continue;
    const std::string wire =
        row.wire_counted() ? fmt::format("{}", row.wire.sent) : std::string("not counted");
    return fmt::format("rank {} {} {}: calls say {} bytes sent, copies {}, the formula {}",
                       row.rank, name_of(row.phase), comm::name_of(row.kind), row.algo_bytes, wire,
                       *row.formula_bytes);
  }
  return {};
}

std::vector<CallTotal> call_totals(const std::vector<train::RankResult>& ranks) {
  std::vector<CallTotal> totals;
  std::map<std::tuple<Phase, comm::CollectiveKind, std::string>, std::size_t> places;
  for (const train::RankResult& rank : ranks) {
    for (const comm::CallRecord& call : rank.calls) {
      const auto [place, is_new] =
          places.try_emplace({call.phase, call.kind, call.label}, totals.size());
      if (is_new) totals.push_back({call.phase, call.kind, call.label});
      CallTotal& total = totals[place->second];
      total.calls += 1;
      total.payload_bytes += static_cast<double>(call.payload_bytes);
      total.algo_bytes += static_cast<double>(call.algo_bytes);
      total.ns += static_cast<double>(call.finished_ns - call.issued_ns);
      total.exposed_ns += static_cast<double>(call.peer_wait_ns + call.move_ns);
    }
  }
  const auto count = static_cast<double>(ranks.size());
  for (CallTotal& total : totals) {
    for (double* sum :
         {&total.calls, &total.payload_bytes, &total.algo_bytes, &total.ns, &total.exposed_ns}) {
      *sum /= count;
    }
  }
  return totals;
}

}  // namespace shardbench::bench
