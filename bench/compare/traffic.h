#pragma once

#include <string>
#include <vector>

#include "bench/compare/row.h"

namespace shardbench::bench {

/// Counted traffic of all ranks beside the closed forms, ordered by rank, phase, kind. An entry
/// that only one side has stands with zeros on the other.
std::vector<TrafficRow> traffic_rows(const std::vector<train::RankResult>& ranks,
                                     sharding::FormulaKind kind,
                                     const sharding::FormulaInput& input);

/// First entry in which algo, wire and formula bytes are not the same, as one line; "" if all are.
/// With `may_hand_on` a rank may send on behalf of its neighbours (MPI between hosts, see
/// docs/launchers.md): the sum of wire bytes over all ranks then decides.
std::string first_disagreement(const std::vector<TrafficRow>& rows, bool may_hand_on);

/// The calls of the last step by (phase, kind, label), mean over ranks, in the order in which they
/// first appear.
std::vector<CallTotal> call_totals(const std::vector<train::RankResult>& ranks);

}  // namespace shardbench::bench
