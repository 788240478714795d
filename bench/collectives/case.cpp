#include "bench/collectives/case.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using comm::ReduceOp;

constexpr std::array kKinds = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                               CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                               CollectiveKind::kReduce};

/// Our names first, then those of nccl-tests.
constexpr std::array<std::pair<std::string_view, DType>, 9> kDTypes = {
    {{"fp32", DType::kFloat32},
     {"fp64", DType::kFloat64},
     {"bf16", DType::kBFloat16},
     {"fp16", DType::kFloat16},
     {"int64", DType::kInt64},
     {"float", DType::kFloat32},
     {"double", DType::kFloat64},
     {"bfloat16", DType::kBFloat16},
     {"half", DType::kFloat16}}};
constexpr std::size_t kOwnDTypeNames = 5;

constexpr std::array<std::pair<std::string_view, ReduceOp>, 3> kOps = {
    {{"sum", ReduceOp::kSum}, {"avg", ReduceOp::kAverage}, {"max", ReduceOp::kMax}}};

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

std::vector<std::int64_t> counts_of(const CollectivesRequest& request, DType dtype) {
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  std::vector<std::int64_t> counts;
  for (std::int64_t bytes = request.min_bytes; bytes <= request.max_bytes;) {
    const std::int64_t count = bytes / element;
    if (counts.empty() || counts.back() != count) counts.push_back(count);
    if (counts.size() > 100'000) throw UserError("more than 100,000 sizes: make the step larger");
    if (request.step_bytes > 0) {
      bytes += request.step_bytes;
    } else if (request.factor > 1) {
      if (bytes > request.max_bytes / request.factor) break;  // the next one would be beyond -e
      bytes *= request.factor;
    } else {
      break;
    }
  }
  return counts;
}

void check(const CollectivesRequest& request) {
  SHARDBENCH_CHECK(!request.kinds.empty() && !request.dtypes.empty() && !request.ops.empty());
  SHARDBENCH_CHECK_GE(request.iterations, 1);
  if (request.max_bytes < request.min_bytes) {
    throw UserError::format("-e {}: below -b {}; give sizes from small to large", request.max_bytes,
                            request.min_bytes);
  }
  if (request.root < 0 || request.root >= request.world_size) {
    throw UserError::format("--root {}: must be a rank from 0 to {}; nearest: {}", request.root,
                            request.world_size - 1,
                            std::clamp(request.root, 0, request.world_size - 1));
  }
  for (const DType dtype : request.dtypes) {
    const auto element = static_cast<std::int64_t>(size_of(dtype));
    if (request.min_bytes < element) {
      throw UserError::format("-b {}: less than one {} element; nearest: {}", request.min_bytes,
                              name_of(dtype), element);
    }
    const bool any = std::ranges::any_of(request.kinds, reduces);
    if (dtype == DType::kInt64 && any && std::ranges::count(request.ops, ReduceOp::kAverage) > 0) {
      throw UserError("-o avg: int64 has no average; use sum or max, or -d fp32");
    }
  }
}

}  // namespace

std::vector<CollectiveCase> plan_cases(const CollectivesRequest& request) {
  check(request);
  std::vector<CollectiveCase> cases;
  for (const CollectiveKind kind : request.kinds) {
    for (const DType dtype : request.dtypes) {
      std::vector<std::optional<ReduceOp>> ops = {std::nullopt};
      if (reduces(kind)) ops.assign(request.ops.begin(), request.ops.end());
      for (const std::optional<ReduceOp> op : ops) {
        for (const std::int64_t count : counts_of(request, dtype)) {
          cases.push_back({kind, dtype, op, has_root(kind) ? request.root : -1, count});
        }
      }
    }
  }
  if (request.fault) {
    if (request.fault->rank >= request.world_size) {
      throw UserError::format("--inject: there is no rank {} of {}; nearest: {}",
                              request.fault->rank, request.world_size, request.world_size - 1);
    }
    if (request.fault->row > static_cast<int>(cases.size())) {
      throw UserError::format("--inject: there is no row {} of {}; nearest: {}", request.fault->row,
                              cases.size(), cases.size());
    }
    if (request.fault->kind == CollectivesFault::Kind::kWrong && request.checks == 0) {
      throw UserError("--inject wrong: nobody would see it with -c 0; use -c 1");
    }
  }
  return cases;
}

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  for (std::string unit; file >> key >> kib;) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return 0;
}

void require_memory(const CollectivesRequest& request, std::int64_t available_bytes) {
  if (available_bytes <= 0) return;
  // Input and output; memory that peers cannot reach has a copy of what they read.
  const std::int64_t copies = (request.symmetric ? 2 : 3) * request.world_size;
  const std::int64_t most = available_bytes / copies;
  if (request.max_bytes <= most) return;
  throw UserError::format(
      "-e {}: {} ranks need {} for their buffers, {} are available; nearest: {}M",
      request.max_bytes, request.world_size,
      format_bytes(request.max_bytes > std::numeric_limits<std::int64_t>::max() / copies
                       ? std::numeric_limits<std::int64_t>::max()
                       : request.max_bytes * copies),
      format_bytes(available_bytes), most >> 20);
}

std::int64_t parse_bytes(const std::string& flag, const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const auto unit =
        kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    throw UserError::format("{} '{}': give bytes, such as 8, 64K, 16M or 1G", flag, text);
  }
  const std::int64_t most = std::int64_t{1} << 46;
  if (error != std::errc{} || value > most >> shift) {
    throw UserError::format("{} {}: too large; at most 64T", flag, text);
  }
  if (value < 1) throw UserError::format("{} {}: must be at least 1 byte; nearest: 1", flag, text);
  return value << shift;
}

std::string_view redop_name(ReduceOp op) {
  for (const auto& [name, known] : kOps) {
    if (known == op) return name;
  }
  return "?";
}

ReduceOp parse_redop(const std::string& flag, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, op] : kOps) {
    if (name == text) return op;
    names.emplace_back(name);
  }
  throw UserError::format("{} '{}': choose from {}{}", flag, text, join(names),
                          did_you_mean(text, names));
}

DType parse_dtype(const std::string& flag, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, dtype] : kDTypes) {
    if (name == text) return dtype;
    if (names.size() < kOwnDTypeNames) names.emplace_back(name);
  }
  throw UserError::format("{} '{}': choose from {}{}", flag, text, join(names),
                          did_you_mean(text, names));
}

CollectiveKind parse_kind(const std::string& flag, const std::string& text) {
  std::vector<std::string> names;
  for (const CollectiveKind kind : kKinds) {
    if (name_of(kind) == text) return kind;
    names.emplace_back(name_of(kind));
  }
  throw UserError::format("{} '{}': choose from {}{}", flag, text, join(names),
                          did_you_mean(text, names));
}

CollectivesFault CollectivesFault::parse(const std::string& text) {
  const auto fail = [&]() -> UserError {
    return UserError::format(
        "--inject '{}': give KIND@RANK,ROW with wrong, kill or stall, such as wrong@1,3", text);
  };
  const std::size_t at = text.find('@');
  const std::size_t comma = text.find(',', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || comma == std::string::npos) throw fail();
  CollectivesFault fault;
  const std::string kind = text.substr(0, at);
  if (kind == "kill")
    fault.kind = Kind::kKill;
  else if (kind == "stall")
    fault.kind = Kind::kStall;
  else if (kind != "wrong")
    throw fail();
  const auto number = [&](std::size_t begin, std::size_t end, int least) {
    int value = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc{} || stop != text.data() + end || value < least) throw fail();
    return value;
  };
  fault.rank = number(at + 1, comma, 0);
  fault.row = number(comma + 1, text.size(), 1);
  return fault;
}

}  // namespace shardbench::bench
