#include "common/train/registry.h"

#include <algorithm>

#include "common/core/error.h"

namespace shardbench::train {

void Registry::add(StrategyEntry entry) {
  const bool known = std::any_of(entries_.begin(), entries_.end(),
                                 [&](const StrategyEntry& e) { return e.name == entry.name; });
  SHARDBENCH_CHECK(!known, "strategy {} is registered twice", entry.name);
  entries_.push_back(std::move(entry));
}

const StrategyEntry& Registry::find(const std::string& name) const {
  for (const StrategyEntry& entry : entries_) {
    if (entry.name == name) return entry;
  }
  std::string known;
  for (const StrategyEntry& entry : entries_) known += (known.empty() ? "" : ", ") + entry.name;
  throw UserError::format("unknown strategy '{}': choose from {}", name, known);
}

}  // namespace shardbench::train
