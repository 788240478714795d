#include "bench/compare/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace shardbench::bench {

using json = nlohmann::ordered_json;

namespace {

bool has(const ops::TuningTable& table, const ops::TuneKey& key) {
  return std::any_of(table.entries.begin(), table.entries.end(),
                     [&](const ops::TunedEntry& entry) { return entry.key == key; });
}

/// Adds what `more` has measured besides. Measured choices stay although a later batch failed.
void merge(ops::TuningTable& table, const ops::TuningTable& more) {
  if (more.mode == ops::TuneMode::kOn) table.mode = ops::TuneMode::kOn;
  for (const ops::TunedEntry& entry : more.entries) {
    if (!has(table, entry.key)) table.entries.push_back(entry);
  }
  if (table.note.empty()) table.note = more.note;
}

json entry_json(const ops::TunedEntry& entry) {
  const ops::TuneKey& key = entry.key;
  json out = {{"op", "linear"},
              {"pass", ops::name_of(key.pass)},
              {"shape", {{"rows", key.rows}, {"in", key.in}, {"out", key.out}}},
              {"dtype", name_of(key.dtype)}};
  if (key.pass == ops::Pass::kForward) out["bias"] = key.bias;
  if (key.pass == ops::Pass::kWeightGrad) out["accumulate"] = key.accumulate;
  out["chosen"] = ops::name_of(entry.chosen);
  json times = json::object();
  json refused = json::array();
  for (const ops::CandidateTime& time : entry.times) {
    const std::string name(ops::name_of(time.candidate));
    if (!time.right) refused.push_back(name);
    if (time.right && time.ns > 0) times[name] = time.ns;
  }
  out["times_ns"] = std::move(times);
  if (!refused.empty()) out["refused"] = std::move(refused);
  return out;
}

}  // namespace

int tune(Request& request, const Engine& engine) {
  if (request.base.tuning.mode != ops::TuneMode::kOn) return 0;
  ops::TuningTable table;
  std::set<std::int64_t> batches;
  for (const train::RunConfig& config : blocks_of(request)) {
    if (!engine.tune || !batches.insert(config.batch).second) continue;
    const train::TuningRun run = engine.tune(config);
    merge(table, run.table);
    if (run.signal != 0) return run.signal;
  }
  request.base.tuning = std::move(table);
  return 0;
}

json tuning_json(const ops::TuningTable& table) {
  json entries = json::array();
  for (const ops::TunedEntry& entry : table.entries) entries.push_back(entry_json(entry));
  json out = {{"mode", ops::name_of(table.mode)}, {"entries", std::move(entries)}};
  if (!table.note.empty()) out["note"] = table.note;
  return out;
}

std::string tuning_line(const ops::TuningTable& table) {
  if (!table.note.empty()) return table.note;
  if (table.mode != ops::TuneMode::kOn) return "";
  const auto other = std::count_if(
      table.entries.begin(), table.entries.end(),
      [](const ops::TunedEntry& entry) { return entry.chosen != ops::Candidate::kAten; });
  return fmt::format("tuning: {} shapes measured, {} of them faster otherwise than by ATen",
                     table.entries.size(), other);
}

}  // namespace shardbench::bench
