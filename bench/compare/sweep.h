#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/link.h"
#include "common/sharding/unit_plan.h"
#include "common/train/config.h"

namespace shardbench::bench {

struct Request;

/// Values that an invocation goes through, beside strategies and world sizes. An empty list stands
/// for the one value of Request::base.
struct Sweep {
  std::vector<std::int64_t> batches;  ///< sequences per rank and micro-batch
  std::vector<sharding::UnitPolicy> units;
  std::vector<int> prefetches;  ///< in both directions
  std::vector<std::optional<comm::LinkModel>> links;
  std::vector<double> bucket_caps_mib;
};

enum class Axis { kBatch, kUnits, kPrefetch, kLink, kBucketCap };
inline constexpr std::array kAxes = {Axis::kBatch, Axis::kUnits, Axis::kPrefetch, Axis::kLink,
                                     Axis::kBucketCap};

/// "batch", "units", "prefetch", "link", "bucket".
std::string axis_name(Axis axis);
/// The job's value: "8", "block", "2" ("1/2" if forward and backward differ), "1Gbit,20us" or
/// "none", "25".
std::string axis_value(Axis axis, const train::RunConfig& config);
/// Whether the request goes through several values.
bool varies(const Request& request, Axis axis);

/// The job of every block, strategy left open: each combination once, W outermost, then batch,
/// units, prefetch, link, bucket cap. Throws UserError when the global batch does not divide.
std::vector<train::RunConfig> blocks_of(const Request& request);

/// What tells a block from the others: "W=2", "W=4, batch 8, link none".
std::string block_title(const Request& request, const train::RunConfig& config);

/// Name of a result, unique in its file: strategy, W and units, then a suffix for each other axis
/// that varies: "fsdp/w4/block", "fsdp/w4/block/b8/p2/link1Gbit/c25".
std::string result_name(const Request& request, const train::RunConfig& config);

/// The values of `axes`, as one text: jobs with the same text are alike in them.
std::string values_of(const std::vector<Axis>& axes, const train::RunConfig& config);

}  // namespace shardbench::bench
