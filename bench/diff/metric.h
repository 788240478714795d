#pragma once

#include <string>
#include <vector>

namespace shardbench::bench {

/// What is compared of a row.
struct Metric {
  enum class Kind {
    kTime,     ///< measured step by step: change with an interval
    kDerived,  ///< follows from the step time, never tested a second time
    kExact,    ///< the same in every run of one program: no interval
    kLoss,     ///< exact, but rounding may differ
    kHash,     ///< the same or not
  };
  std::string name;  ///< for --metric and JSON: "step_time"
  std::string unit;  ///< of the values in tables: "ms", "MiB", ""
  std::string key;   ///< in ResultRow::times or ::figures
  Kind kind = Kind::kExact;
  double per_unit = 1;  ///< ns or bytes in one unit
  bool higher_is_better = false;
  bool brief = true;  ///< also in the brief table
};

/// In the order of the table.
const std::vector<Metric>& all_metrics();
std::vector<std::string> metric_names();

/// The metrics of these names in table order; none named: those of the brief table, or all. Throws
/// UserError for an unknown name.
std::vector<const Metric*> choose_metrics(const std::vector<std::string>& names, bool full);

}  // namespace shardbench::bench
