#pragma once

#include <nlohmann/json.hpp>

#include <optional>

#include "bench/compare/row.h"

namespace shardbench::bench {

/// One row from its result in a document; `job` is what it ran. Throws json exceptions for fields
/// that are missing or of another type, UserError for values that cannot be.
Row read_row(const nlohmann::ordered_json& result, const train::RunConfig& job,
             sharding::FormulaKind formula, const sharding::ModelShape& model);

/// "1Gbit,20us" or "none".
std::optional<comm::LinkModel> read_link(const nlohmann::ordered_json& text);

}  // namespace shardbench::bench
