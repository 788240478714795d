#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/kind.h"
#include "common/core/dtype.h"
#include "common/core/phase.h"
#include "common/sharding/model_shape.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::sharding {

/// Which family of closed forms describes a strategy.
enum class FormulaKind { kSingle, kDdp, kZero1, kZero2, kZero3, kFsdp };

/// What the closed forms read: model shapes, W, dtypes and run options; never calls.
struct FormulaInput {
  const ModelShape* model = nullptr;
  UnitPolicy units;
  int world_size = 1;
  int accumulation = 1;
  enum class Reshard { kTrue, kFalse, kAuto } reshard_after_forward = Reshard::kTrue;
  double bucket_cap_mib = 25;
  double first_bucket_mib = 1;
  DType compute_dtype = DType::kFloat32;  ///< of weights while they are used, and as they travel
  DType reduce_dtype = DType::kFloat32;   ///< of gradients as they travel
  bool in_place = false;                  ///< weights are read at their owners (zero3, fsdp)
  bool optimizer_in_backward = false;     ///< no gradient is kept (zero2, zero3, fsdp)
  bool sparse_embedding = false;          ///< gradients of token tables travel as rows
  std::int64_t tokens = 0;                ///< of a rank's micro-batch: read with sparse_embedding
  int optimizer_moments = 2;              ///< AdamW 2; SGD with momentum 1, without 0
};

/// Bytes of one optimizer step of one rank by (phase, kind), `metrics` left out.
struct FormulaTraffic {
  Phase phase = Phase::kInit;
  comm::CollectiveKind kind{};
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;
  std::int64_t algo_bytes = 0;  ///< sent by this rank
};

/// Persistent bytes of one rank; padding (64-byte pieces) apart.
struct FormulaMemory {
  std::int64_t param = 0;
  std::int64_t grad = 0;
  std::int64_t optimizer = 0;
  std::int64_t padding = 0;  ///< over the three together
  std::int64_t persistent() const { return param + grad + optimizer; }

  friend bool operator==(const FormulaMemory&, const FormulaMemory&) = default;
};

/// What a rank contributes to an exchange of `slots` rows of a table: an int64 id and `width` fp32
/// each.
constexpr std::int64_t row_message_bytes(std::int64_t slots, std::int64_t width) {
  return slots * (8 + 4 * width);
}

/// Entries with at least one call, ordered by phase, then kind. Source: design of each strategy,
/// its README; factors as in nccl-tests doc/PERFORMANCE.md.
std::vector<FormulaTraffic> formula_traffic(FormulaKind kind, const FormulaInput& input, int rank);
FormulaMemory formula_memory(FormulaKind kind, const FormulaInput& input, int rank);
/// The same of every rank, by rank, and for some of the parameters only, such as a unit's. Time
/// grows with parameters + ranks.
std::vector<FormulaMemory> formula_memory_by_rank(FormulaKind kind, const FormulaInput& input,
                                                  std::span<const int> parameters);
/// Largest sum of full (unsharded) weights that may live at one moment: the units of the module
/// being run, those of the modules around it up to the root, and `prefetch` units ahead; all
/// units where they are kept after forward.
std::int64_t unsharded_bound_bytes(const FormulaInput& input, int prefetch);

}  // namespace shardbench::sharding
