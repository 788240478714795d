#include "bench/diff/metric.h"

#include <algorithm>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::bench {

const std::vector<Metric>& all_metrics() {
  constexpr double kMs = 1e6;
  constexpr double kMib = 1 << 20;
  using Kind = Metric::Kind;
  static const std::vector<Metric> kMetrics = {
      {"step_time", "ms", "step", Kind::kTime, kMs, false, true},
      {"tokens_per_s", "", "step", Kind::kDerived, 1, true, true},
      {"forward", "ms", "forward", Kind::kTime, kMs, false, false},
      {"backward", "ms", "backward", Kind::kTime, kMs, false, false},
      {"optimizer", "ms", "optimizer", Kind::kTime, kMs, false, false},
      {"exposed", "ms", "exposed", Kind::kTime, kMs, false, true},
      {"peak", "MiB", "peak", Kind::kExact, kMib, false, true},
      {"states", "MiB", "states", Kind::kExact, kMib, false, true},
      {"sent", "MiB", "sent", Kind::kExact, kMib, false, true},
      {"calls", "", "calls", Kind::kExact, 1, false, true},
      {"parameters", "", "", Kind::kHash, 1, false, true},
      {"loss", "", "loss", Kind::kLoss, 1, false, true},
  };
  return kMetrics;
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& metric : all_metrics()) names.push_back(metric.name);
  return names;
}

std::vector<const Metric*> choose_metrics(const std::vector<std::string>& names, bool full) {
  const std::vector<std::string> known = metric_names();
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw UserError::format("--metric '{}': choose from {}{}", name, join(known),
                              did_you_mean(name, known));
    }
  }
  std::vector<const Metric*> chosen;
  for (const Metric& metric : all_metrics()) {
    const bool named = std::find(names.begin(), names.end(), metric.name) != names.end();
    if (named || (names.empty() && (full || metric.brief))) chosen.push_back(&metric);
  }
  return chosen;
}

}  // namespace shardbench::bench
