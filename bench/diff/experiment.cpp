#include "bench/diff/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace shardbench::bench {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLetters = 40;

std::string shown(const json& value) {
  if (value.is_null()) return "none";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.size() > kMostLetters ? text.substr(0, kMostLetters - 3) + "..." : text;
}

void compare_keys(const std::string& path, const json& before, const json& after,
                  std::vector<std::string>& differences) {
  if (before == after) return;
  if (!before.is_object() || !after.is_object()) {
    differences.push_back(fmt::format("{}: {}, {}", path, shown(before), shown(after)));
    return;
  }
  json keys = before;
  keys.update(after);
  for (const auto& [key, unused] : keys.items()) {
    compare_keys(path + "." + key, before.value(key, json()), after.value(key, json()),
                 differences);
  }
}

/// What the autotuner chose, without how long each took.
json choices(const json& config) {
  json entries = json::array();
  if (!config.contains("tuning") || !config["tuning"].is_object()) return entries;
  for (json entry : config["tuning"].value("entries", json::array())) {
    if (entry.is_object()) entry.erase("times_ns");
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// Takes the autotuner's entries out and says in one line if its choices differ.
void compare_tuning(json& before, json& after, std::vector<std::string>& differences) {
  const json old_choices = choices(before);
  const json new_choices = choices(after);
  std::size_t others = 0;
  for (std::size_t i = 0; i < std::max(old_choices.size(), new_choices.size()); ++i) {
    const bool both = i < old_choices.size() && i < new_choices.size();
    others += both && old_choices[i] == new_choices[i] ? 0 : 1;
  }
  if (others > 0) {
    differences.push_back(fmt::format(
        "config.tuning: {} operation{} computed otherwise (--autotune fixed prevents it)", others,
        others == 1 ? "" : "s"));
  }
  for (json* config : {&before, &after}) {
    const auto tuning = config->find("tuning");
    if (tuning != config->end() && tuning->is_object()) tuning->erase("entries");
  }
}

}  // namespace

std::vector<std::string> differences_of(const ResultFile& before, const ResultFile& after) {
  std::vector<std::string> differences;
  for (const char* key : {"host_name", "cpu_model", "num_cpus", "memory_bytes", "kernel", "version",
                          "git_sha", "build_type", "compiler", "torch_version", "device", "backend",
                          "threads_per_rank", "simd", "env", "seed", "deterministic", "link"}) {
    compare_keys(std::string("context.") + key, before.context.value(key, json()),
                 after.context.value(key, json()), differences);
  }
  json old_config = before.config;
  json new_config = after.config;
  compare_tuning(old_config, new_config, differences);
  compare_keys("config", old_config, new_config, differences);
  return differences;
}

}  // namespace shardbench::bench
