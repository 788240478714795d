#include "bench/layout/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

int parse_ranks(const std::string& flag, const std::string& whole, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw UserError::format("{} '{}': give whole numbers and ranges, such as 2,4 or 1-{}", flag,
                            whole, kMostLayoutRanks);
  }
  if (error != std::errc{} || value < 1 || value > kMostLayoutRanks) {
    const bool below = !text.empty() && (text[0] == '-' || (error == std::errc{} && value < 1));
    throw UserError::format("{} {}: must be a number from 1 to {}; nearest: {}", flag, text,
                            kMostLayoutRanks, below ? 1 : kMostLayoutRanks);
  }
  return value;
}

}  // namespace

std::vector<int> parse_layout_worlds(const std::string& flag, const std::string& text) {
  std::vector<int> worlds;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const std::size_t dash = item.find('-', 1);
    const bool range = !item.empty() && dash != std::string::npos;
    const int first = parse_ranks(flag, text, range ? item.substr(0, dash) : item);
    const int last = range ? parse_ranks(flag, text, item.substr(dash + 1)) : first;
    if (last < first) {
      throw UserError::format("{} '{}': {} is no range; write {}-{}", flag, text, item, last,
                              first);
    }
    for (int world_size = first; world_size <= last; ++world_size) worlds.push_back(world_size);
  }
  std::vector<int> sorted = worlds;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) {
    throw UserError::format("{} '{}': {} stands there twice", flag, text, *twice);
  }
  return worlds;
}

LayoutReport make_layout_report(sharding::ModelShape model, const LayoutOptions& options,
                                const std::vector<std::string>& strategies,
                                const std::vector<int>& worlds) {
  LayoutReport report;
  report.model = std::move(model);
  report.options = options;
  report.units = sharding::plan_units(report.model, options.units);
  for (const std::string& strategy : strategies) placement_of(strategy);
  for (const int world_size : worlds) {
    for (const std::string& strategy : strategies) {
      report.layouts.push_back(plan_layout(report.model, strategy, world_size, options));
    }
  }
  return report;
}

std::string layout_line(const LayoutReport& report) {
  const LayoutOptions& options = report.options;
  const std::string precision =
      options.compute_dtype == DType::kFloat32 && options.reduce_dtype == DType::kFloat32
          ? fmt::format("fp32 AdamW ({} bytes each)", 4 * (2 + kLayoutMoments))
          : fmt::format("{} (reduce {}), masters and AdamW fp32", name_of(options.compute_dtype),
                        name_of(options.reduce_dtype));
  return fmt::format("{}: {} params in {} tensors, {}, units {}", report.model.name,
                     format_count(report.model.parameter_count()), report.model.parameters.size(),
                     precision, options.units.to_string());
}

const std::vector<std::string>& layout_table_names() {
  static const std::vector<std::string> kNames = {"brief", "full",    "summary",
                                                  "units", "tensors", "ranks"};
  return kNames;
}

LayoutTable layout_table_kind(const std::string& name) {
  const auto at = std::ranges::find(layout_table_names(), name);
  SHARDBENCH_CHECK(at != layout_table_names().end(), "table '{}'", name);
  return static_cast<LayoutTable>(at - layout_table_names().begin());
}

}  // namespace shardbench::bench
