#include "common/train/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "common/core/error.h"

namespace shardbench::train {

namespace {

constexpr double kMostSlowPercent = 10'000;

void require(bool ok, const char* flag, double value, const char* range) {
  if (!ok) throw UserError::format("{} {} is out of range: give {}", flag, value, range);
}

}  // namespace

void validate(const OptimizerConfig& config) {
  require(std::isfinite(config.lr) && config.lr >= 0, "--lr", config.lr, "a number >= 0");
  require(config.lr_warmup >= 0, "--lr-warmup", config.lr_warmup, "a number of steps >= 0");
  require(config.weight_decay >= 0 && std::isfinite(config.weight_decay), "--weight-decay",
          config.weight_decay, "a number >= 0");
  require(config.beta1 >= 0 && config.beta1 < 1, "beta1", config.beta1, "a number in [0, 1)");
  require(config.beta2 >= 0 && config.beta2 < 1, "beta2", config.beta2, "a number in [0, 1)");
  require(config.eps > 0, "eps", config.eps, "a number > 0");
  require(config.momentum >= 0 && config.momentum < 1, "momentum", config.momentum,
          "a number in [0, 1)");
}

void validate(const StrategyOptions& options) {
  require(options.forward_prefetch >= 0, "--forward-prefetch", options.forward_prefetch,
          "a number >= 0");
  require(options.backward_prefetch >= 0, "--backward-prefetch", options.backward_prefetch,
          "a number >= 0");
  require(options.bucket_cap_mib > 0, "--bucket-cap-mib", options.bucket_cap_mib,
          "a number above 0, such as 25");
  require(options.first_bucket_mib > 0, "first bucket", options.first_bucket_mib,
          "a number of MiB above 0");
  const auto require_dtype = [](const char* flag, DType dtype) {
    if (dtype == DType::kFloat32 || is_half_width(dtype)) return;
    throw UserError::format("{} {} is not possible: give fp32, bf16 or fp16", flag, name_of(dtype));
  };
  require_dtype("--dtype", options.compute_dtype);
  require_dtype("--reduce-dtype", options.reduce_dtype);
}

void validate_loss_scale(const StrategyOptions& options,
                         const std::optional<LossScale>& loss_scale) {
  if (options.compute_dtype == DType::kFloat16 && !loss_scale) {
    throw UserError(
        "--dtype fp16 needs a loss scale, or small gradients become zero: give --loss-scale "
        "dynamic (or a number), or take --dtype bf16, which needs none");
  }
  if (loss_scale && options.compute_dtype != DType::kFloat16 &&
      options.reduce_dtype != DType::kFloat16) {
    throw UserError::format(
        "--loss-scale is for fp16; --dtype {} with --reduce-dtype {} has the range of fp32: leave "
        "it out",
        name_of(options.compute_dtype), name_of(options.reduce_dtype));
  }
}

void validate_sparse_embedding(const StrategyOptions& options) {
  if (!options.sparse_embedding) return;
  if (options.reduce_dtype != DType::kFloat32) {
    throw UserError::format(
        "--sparse-embedding: rows travel as fp32; take --reduce-dtype fp32, not {}",
        name_of(options.reduce_dtype));
  }
  if (options.optimizer_in_backward) {
    throw UserError(
        "--sparse-embedding adds rows to a gradient that is kept, and --optimizer-in-backward "
        "keeps none; leave one out");
  }
}

void validate_step_in_backward(const StrategyOptions& options, double max_norm, bool loss_scale) {
  if (!options.optimizer_in_backward) return;
  if (max_norm > 0) {
    throw UserError(
        "--optimizer-in-backward and --max-norm exclude each other: the norm is known when the "
        "last gradient is there, and the first weights have been stepped by then; leave one out");
  }
  if (!loss_scale) return;
  throw UserError(
      "--optimizer-in-backward and --loss-scale exclude each other: whether a gradient has "
      "overflowed is known when the last is there; take --dtype bf16, which needs no scale");
}

double learning_rate(const OptimizerConfig& config, std::int64_t step) {
  if (step + 1 >= config.lr_warmup) return config.lr;
  return config.lr * static_cast<double>(step + 1) / config.lr_warmup;
}

int moments_of(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::kAdamW ? 2 : 1;
}

std::string to_string(InitMode mode) {
  switch (mode) {
    case InitMode::kDeferred:
      return "deferred";
    case InitMode::kBroadcast:
      return "broadcast";
    case InitMode::kBroadcastTensor:
      return "broadcast-tensor";
  }
  return "?";
}

InitMode parse_init(const std::string& text) {
  for (InitMode mode : {InitMode::kDeferred, InitMode::kBroadcast, InitMode::kBroadcastTensor}) {
    if (to_string(mode) == text) return mode;
  }
  throw UserError::format("--init '{}' is not known: give deferred, broadcast or broadcast-tensor",
                          text);
}

std::string to_string(CollectiveMode mode) {
  switch (mode) {
    case CollectiveMode::kDirect:
      return "direct";
    case CollectiveMode::kStaged:
      return "staged";
    case CollectiveMode::kInPlace:
      return "in-place";
  }
  return "?";
}

CollectiveMode parse_collectives(const std::string& text) {
  for (CollectiveMode mode :
       {CollectiveMode::kDirect, CollectiveMode::kStaged, CollectiveMode::kInPlace}) {
    if (to_string(mode) == text) return mode;
  }
  throw UserError::format("--collectives '{}' is not known: give direct, staged or in-place", text);
}

int RunConfig::own_steps(int rank) const {
  const bool cut = inject && inject->kind == Injection::Kind::kShort && inject->rank == rank;
  return cut ? std::min(inject->step - 1, all_steps()) : all_steps();
}

Injection Injection::parse(const std::string& text) {
  const auto refuse = [&](const std::string& what) -> UserError {
    return UserError::format(
        "--inject '{}': {}; give KIND@RANK,STEP,WHERE with KIND throw, kill, exit, stall or "
        "slow:PERCENT and WHERE forward, backward or optimizer, such as kill@1,3,backward or "
        "slow:5@0,0,forward (step 0: every step), or short@RANK,STEP,data (no data from then on)",
        text, what);
  };
  const std::size_t at = text.find('@');
  const std::size_t first = text.find(',', at == std::string::npos ? 0 : at);
  const std::size_t second = first == std::string::npos ? first : text.find(',', first + 1);
  if (at == std::string::npos || second == std::string::npos) throw refuse("not of that form");

  Injection injection;
  injection.text = text;
  std::string kind = text.substr(0, at);
  if (const std::size_t colon = kind.find(':'); kind.rfind("slow:", 0) == 0) {
    const char* end = text.data() + at;
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, injection.percent);
    if (error != std::errc{} || rest != end || !(injection.percent > 0) ||
        injection.percent > kMostSlowPercent) {
      throw refuse(fmt::format("PERCENT is not a number above 0 and at most {}", kMostSlowPercent));
    }
    kind = "slow";
  } else if (kind == "slow") {
    throw refuse("slow needs a PERCENT");
  }
  constexpr std::array<std::string_view, 6> kKinds = {"throw", "kill", "exit",
                                                      "stall", "slow", "short"};
  const auto* found = std::find(kKinds.begin(), kKinds.end(), kind);
  if (found == kKinds.end()) throw refuse(fmt::format("unknown kind '{}'", kind));
  injection.kind = static_cast<Kind>(found - kKinds.begin());

  const auto number = [&](std::size_t begin, std::size_t end, const char* what, int least) {
    int value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc{} || rest != text.data() + end || value < least) {
      throw refuse(fmt::format("{} is not a number >= {}", what, least));
    }
    return value;
  };
  injection.rank = number(at + 1, first, "RANK", 0);
  const bool every_step_possible = injection.kind == Kind::kSlow;
  injection.step = number(first + 1, second, "STEP", every_step_possible ? 0 : 1);
  injection.where = text.substr(second + 1);
  const bool known = injection.kind == Kind::kShort
                         ? injection.where == "data"
                         : injection.where == "forward" || injection.where == "backward" ||
                               injection.where == "optimizer";
  if (!known) {
    throw refuse(fmt::format("unknown place '{}'", injection.where));
  }
  return injection;
}

}  // namespace shardbench::train
