#pragma once

#include <nlohmann/json.hpp>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// One row of a document's "peers", with the names that "results" has; absent = not measured.
/// `ours` is the row of the counterpart, null unless it is right.
nlohmann::ordered_json peer_json(const PeerRow& row, const train::RunConfig& config,
                                 const Row* ours);
/// Back again; `config` is the block's job. Throws json exceptions for fields that are missing or
/// of another type, UserError for values that cannot be.
PeerRow read_peer(const nlohmann::ordered_json& stored, const train::RunConfig& config);

/// The ranks of a peer's result, by the names of "per_rank". Throws json exceptions.
PeerRank read_peer_rank(const nlohmann::ordered_json& stored);

/// The block's row of a peer's counterpart, null unless it is there and right.
const Row* counterpart_row(const Block& block, const PeerRow& peer);

}  // namespace shardbench::bench
