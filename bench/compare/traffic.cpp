#include "bench/compare/traffic.h"

#include <fmt/format.h>

#include <map>
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

std::string first_disagreement(const std::vector<TrafficRow>& rows) {
  for (const TrafficRow& row : rows) {
    if (row.agrees()) continue;
    const std::string wire =
        row.wire_counted() ? fmt::format("{}", row.wire.sent) : std::string("not counted");
    return fmt::format("rank {} {} {}: calls say {} bytes sent, copies {}, the formula {}",
                       row.rank, name_of(row.phase), comm::name_of(row.kind), row.algo_bytes, wire,
                       *row.formula_bytes);
  }
  return {};
}

std::vector<KindTime> kind_times(const std::vector<train::RankResult>& ranks) {
  std::map<Key, double> sums;
  for (const train::RankResult& rank : ranks) {
    for (const comm::CallRecord& call : rank.calls) {
      sums[{call.phase, call.kind}] += static_cast<double>(call.finished_ns - call.issued_ns);
    }
  }
  std::vector<KindTime> times;
  for (const auto& [key, sum] : sums) {
    times.push_back({key.first, key.second, sum / static_cast<double>(ranks.size())});
  }
  return times;
}

}  // namespace shardbench::bench
