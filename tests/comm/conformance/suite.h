#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/recorder.h"
#include "tests/comm/conformance/context.h"

namespace shardbench::comm::conformance {

/// What every backend must do, exactly. A case runs on all ranks at once and leaves no call open.
struct Case {
  std::string_view name;
  void (*run)(Context& context);
};

// One list per file.
const std::vector<Case>& exact_cases();   ///< every collective, type, operation and layout
const std::vector<Case>& large_cases();   ///< payloads of many MiB
const std::vector<Case>& shape_cases();   ///< in place, one element, averages, NaN
const std::vector<Case>& order_cases();   ///< sums whose bits depend on the order of ranks
const std::vector<Case>& flight_cases();  ///< several calls open, handles dropped
const std::vector<Case>& wire_cases();    ///< bytes counted where they are moved

/// Runs every case in symmetric and in plain memory. What this rank saw go wrong, one text each.
std::vector<std::string> run_suite(Communicator& comm, const WireMatrix* wire,
                                   WireRule rule = WireRule::kEveryRank);

}  // namespace shardbench::comm::conformance
