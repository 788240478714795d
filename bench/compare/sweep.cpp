#include "bench/compare/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/compare/request.h"

namespace shardbench::bench {
namespace {

std::string link_text(const std::optional<comm::LinkModel>& link) {
  return link ? link->LinkSpeed::to_string() : std::string("none");
}

std::string rate_of(const std::optional<comm::LinkModel>& link) {
  const std::string text = link_text(link);
  return text.substr(0, text.find(','));
}

/// Every job with `change` applied for every value; the jobs as they are if there is no value.
template <typename Value, typename Change>
std::vector<train::RunConfig> spread(const std::vector<train::RunConfig>& jobs,
                                     const std::vector<Value>& values, Change change) {
  if (values.empty()) return jobs;
  std::vector<train::RunConfig> out;
  for (const train::RunConfig& job : jobs) {
    for (const Value& value : values) change(out.emplace_back(job), value);
  }
  return out;
}

/// "link1Gbit", with the latency where the rate alone would not be unique.
std::string link_suffix(const Request& request, const train::RunConfig& config) {
  const auto& links = request.sweep.links;
  const auto same_rate = std::count_if(links.begin(), links.end(), [&](const auto& other) {
    return rate_of(other) == rate_of(config.link);
  });
  std::string text = same_rate > 1 ? link_text(config.link) : rate_of(config.link);
  std::replace(text.begin(), text.end(), ',', '-');
  return "/link" + text;
}

}  // namespace

std::string axis_name(Axis axis) {
  switch (axis) {
    case Axis::kBatch:
      return "batch";
    case Axis::kUnits:
      return "units";
    case Axis::kPrefetch:
      return "prefetch";
    case Axis::kLink:
      return "link";
    case Axis::kBucketCap:
      return "bucket";
  }
  return "?";
}

std::string axis_value(Axis axis, const train::RunConfig& config) {
  const train::StrategyOptions& options = config.options;
  switch (axis) {
    case Axis::kBatch:
      return fmt::format("{}", config.batch);
    case Axis::kUnits:
      return options.units.to_string();
    case Axis::kPrefetch:
      return options.forward_prefetch == options.backward_prefetch
                 ? fmt::format("{}", options.forward_prefetch)
                 : fmt::format("{}/{}", options.forward_prefetch, options.backward_prefetch);
    case Axis::kLink:
      return link_text(config.link);
    case Axis::kBucketCap:
      return fmt::format("{}", options.bucket_cap_mib);
  }
  return "?";
}

bool varies(const Request& request, Axis axis) {
  const Sweep& sweep = request.sweep;
  switch (axis) {
    case Axis::kBatch:
      return sweep.batches.size() > 1;
    case Axis::kUnits:
      return sweep.units.size() > 1;
    case Axis::kPrefetch:
      return sweep.prefetches.size() > 1;
    case Axis::kLink:
      return sweep.links.size() > 1;
    case Axis::kBucketCap:
      return sweep.bucket_caps_mib.size() > 1;
  }
  return false;
}

std::vector<train::RunConfig> blocks_of(const Request& request) {
  using train::RunConfig;
  std::vector<RunConfig> jobs;
  for (int world_size : request.worlds) jobs.push_back(config_for(request, "", world_size));
  const Sweep& sweep = request.sweep;
  jobs = spread(jobs, sweep.batches, [](RunConfig& c, std::int64_t batch) { c.batch = batch; });
  jobs =
      spread(jobs, sweep.units, [](RunConfig& c, const auto& units) { c.options.units = units; });
  jobs = spread(jobs, sweep.prefetches, [](RunConfig& c, int depth) {
    c.options.forward_prefetch = c.options.backward_prefetch = depth;
  });
  jobs = spread(jobs, sweep.links, [](RunConfig& c, const auto& link) { c.link = link; });
  return spread(jobs, sweep.bucket_caps_mib,
                [](RunConfig& c, double cap) { c.options.bucket_cap_mib = cap; });
}

std::string block_title(const Request& request, const train::RunConfig& config) {
  std::string title = fmt::format("W={}", config.world_size);
  for (Axis axis : kAxes) {
    if (!varies(request, axis)) continue;
    title += fmt::format(", {} {}", axis_name(axis), axis_value(axis, config));
    if (axis == Axis::kBucketCap) title += " MiB";
  }
  return title;
}

std::string result_name(const Request& request, const train::RunConfig& config) {
  std::string name = fmt::format("{}/w{}/{}", config.strategy, config.world_size,
                                 config.options.units.to_string());
  if (varies(request, Axis::kBatch)) name += "/b" + axis_value(Axis::kBatch, config);
  if (varies(request, Axis::kPrefetch)) name += "/p" + axis_value(Axis::kPrefetch, config);
  if (varies(request, Axis::kLink)) name += link_suffix(request, config);
  if (varies(request, Axis::kBucketCap)) name += "/c" + axis_value(Axis::kBucketCap, config);
  return name;
}

std::string values_of(const std::vector<Axis>& axes, const train::RunConfig& config) {
  std::string text;
  for (Axis axis : axes) text += axis_value(axis, config) + ';';
  return text;
}

}  // namespace shardbench::bench
