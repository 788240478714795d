#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// Where the request asks for measured choices, measures them, once for each batch that occurs, and
/// leaves them in `request.base.tuning`, whatever the world size, units or strategy. Does nothing
/// for the other modes; without Engine::tune the fixed rule holds. Returns the signal that ended
/// it, or 0.
int tune(Request& request, const Engine& engine);

/// {mode, entries[{op, pass, shape{rows, in, out}, dtype, bias, accumulate, chosen, times_ns{}}]}:
/// `bias` for the forward, `accumulate` for the weight's gradient; `refused` lists candidates whose
/// values were wrong, `note` says what could not be measured.
nlohmann::ordered_json tuning_json(const ops::TuningTable& table);

/// "tuning: 18 shapes measured, 15 of them faster otherwise than by ATen", or the table's note;
/// empty for the other modes.
std::string tuning_line(const ops::TuningTable& table);

}  // namespace shardbench::bench
