#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "bench/collectives/run.h"
#include "bench/compare/table.h"

namespace shardbench::bench {

/// The table of nccl-tests, once per collective: header lines that start with '#' and state every
/// definition, nine columns out-of-place and in-place, then the bytes on the wire.
std::string collectives_text(const CollectivesReport& report);

/// One row per case, for csv and Markdown.
Table collectives_table(const CollectivesReport& report);

/// "config", "devices", "collectives", "out_of_bounds", "average_bus_bandwidth", "okay" (and what
/// failed) of a result document.
nlohmann::ordered_json collectives_json(const CollectivesReport& report);

}  // namespace shardbench::bench
