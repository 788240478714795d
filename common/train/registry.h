#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/sharding/formulas.h"

namespace shardbench::train {

class Strategy;

/// How gradients of several micro-batches and ranks add up, which fixes their bits: each rank's
/// micro-batches first, then ranks (reduce once per step), or ranks first (reduce every time).
enum class AccumulationOrder { kMicroBatchesFirst, kRanksFirst };

/// One strategy that `--strategy` knows.
struct StrategyEntry {
  std::string name;
  std::string summary;  ///< one line for help and tables
  AccumulationOrder order = AccumulationOrder::kRanksFirst;
  sharding::FormulaKind formula;  ///< which closed forms describe it
  std::function<std::unique_ptr<Strategy>()> make;
};

/// Strategies by name; filled by explicit calls (static initialisers vanish from static libraries).
class Registry {
 public:
  void add(StrategyEntry entry);
  /// Throws UserError naming the known ones.
  const StrategyEntry& find(const std::string& name) const;
  const std::vector<StrategyEntry>& entries() const { return entries_; }

 private:
  std::vector<StrategyEntry> entries_;
};

}  // namespace shardbench::train
