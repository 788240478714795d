#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shardbench::bench {

/// A right row as compare writes it, with these step times (ns) by repetition; 100 tokens per step.
inline nlohmann::json result_with(const std::string& strategy,
                                  const std::vector<std::vector<double>>& repetitions) {
  nlohmann::json result = {
      {"name", strategy + "/w2/block"},
      {"strategy", strategy},
      {"world_size", 2},
      {"repetitions", repetitions.size()},
      {"error_occurred", false},
      {"error_message", ""},
      {"memory_bytes", {{"peak", 3 << 20}, {"persistent", 2 << 20}}},
      {"per_rank", {{{"sent_bytes", 1 << 20}, {"calls", 7}}, {{"sent_bytes", 0}, {"calls", 9}}}},
      {"loss", {{"last", 2.5}}},
      {"parameter_hash", "0123456789abcdef"},
      {"parity", {{"ok", true}, {"first_tensor", ""}}}};
  std::vector<double> all;
  for (const std::vector<double>& times : repetitions) {
    all.insert(all.end(), times.begin(), times.end());
    const std::vector<double> waits(times.size(), 0.0);
    std::vector<double> half;
    for (double time : times) half.push_back(time / 2);
    result["by_repetition"].push_back({{"times", times},
                                       {"forward_ns", half},
                                       {"backward_ns", half},
                                       {"optimizer_ns", half},
                                       {"exposed_ns", waits}});
  }
  result["step_time_ns"] = {{"median", all.front()}, {"times", all}};
  result["tokens_per_s"] = 100 * 1e9 / all.front();
  return result;
}

inline nlohmann::json document_with(const std::vector<nlohmann::json>& results) {
  return {{"schema_version", 1},
          {"context", {{"host_name", "here"}, {"git_sha", "abc"}, {"date", "today"}}},
          {"config", {{"steps", 10}, {"model", {{"name", "tiny"}}}}},
          {"results", results}};
}

/// `count` repetitions of `steps` steps that all take `ns`, each repetition a little (0.2 %) off.
inline std::vector<std::vector<double>> steady(std::size_t count, double ns,
                                               std::size_t steps = 10) {
  std::vector<std::vector<double>> repetitions;
  for (std::size_t i = 0; i < count; ++i) {
    const double off = 0.002 * (static_cast<double>(i % 3) - 1);
    repetitions.emplace_back(steps, ns * (1 + off));
  }
  return repetitions;
}

}  // namespace shardbench::bench
