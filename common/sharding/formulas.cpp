#include "common/sharding/formulas.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "common/core/error.h"
#include "common/sharding/flat.h"

namespace shardbench::sharding {
namespace {

using comm::CollectiveKind;

constexpr std::int64_t kMasterBytes = 4;  // parameters, gradients and moments are kept in fp32

bool has_trainable(const ModelShape& model, const UnitShape& unit) {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [&](int p) { return model.parameters[p].requires_grad; });
}

/// Whether the unit's output has a gradient: something trainable is used in the anchor or in a
/// module that stands before it (what is used later cannot feed it).
bool reached_by_backward(const ModelShape& model, const UnitShape& unit) {
  int end = unit.anchor + 1;  // one past the anchor's subtree, which is contiguous in pre-order
  while (end < static_cast<int>(model.modules.size()) && model.modules[end].parent >= unit.anchor) {
    ++end;
  }
  return std::any_of(
      model.parameters.begin(), model.parameters.end(), [&](const ParameterShape& parameter) {
        if (!parameter.requires_grad) return false;
        return parameter.module < end ||
               std::any_of(parameter.also_used_by.begin(), parameter.also_used_by.end(),
                           [&](int user) { return user < end; });
      });
}

bool gathers_again(const FormulaInput& input, const UnitShape& unit) {
  switch (input.reshard_after_forward) {
    case FormulaInput::Reshard::kTrue:
      return true;
    case FormulaInput::Reshard::kFalse:
      return false;
    case FormulaInput::Reshard::kAuto:
      return unit.anchor != 0;
  }
  return true;
}

/// Adds calls up by (phase, kind).
class Ledger {
 public:
  void add(Phase phase, CollectiveKind kind, std::int64_t calls, std::int64_t payload_bytes,
           std::int64_t algo_bytes) {
    FormulaTraffic& entry = entries_[{phase, kind}];
    entry.phase = phase;
    entry.kind = kind;
    entry.calls += calls;
    entry.payload_bytes += calls * payload_bytes;
    entry.algo_bytes += calls * algo_bytes;
  }
  std::vector<FormulaTraffic> take() const {
    std::vector<FormulaTraffic> result;
    for (const auto& [key, entry] : entries_) result.push_back(entry);
    return result;
  }

 private:
  std::map<std::pair<Phase, CollectiveKind>, FormulaTraffic> entries_;
};

/// all_reduce of every bucket once per step. Sent by a rank whose slice is s of S: its parts of
/// the other slices, S - s, then its reduced slice to everybody else, (W-1) s.
void ddp_traffic(const FormulaInput& input, int rank, Ledger& ledger) {
  const int world_size = input.world_size;
  const auto element = static_cast<std::int64_t>(size_of(input.dtype));
  for (const Bucket& bucket :
       plan_buckets(*input.model, input.bucket_cap_mib, input.first_bucket_mib)) {
    const std::int64_t payload = bucket.extent * element;
    const std::int64_t slice =
        slice_of(bucket.extent, world_size, rank, kPieceAlignment / element).size() * element;
    ledger.add(Phase::kBackward, CollectiveKind::kAllReduce, 1, payload,
               payload + (world_size - 2) * slice);
  }
}

/// all_gather before forward, again before backward if resharded, reduce_scatter in backward.
void fsdp_unit_traffic(const FormulaInput& input, const UnitShape& unit,
                       const std::vector<FlatLayout>& by_rank, int rank, Ledger& ledger) {
  const auto element = static_cast<std::int64_t>(size_of(input.dtype));
  const ShardLayout weights = unit_layout(*input.model, unit, by_rank, false);
  const std::int64_t payload = weights.total() * element;
  const std::int64_t sent = (input.world_size - 1) * weights.count(rank) * element;
  ledger.add(Phase::kForward, CollectiveKind::kAllGather, input.accumulation, payload, sent);
  if (gathers_again(input, unit) && reached_by_backward(*input.model, unit)) {
    ledger.add(Phase::kBackward, CollectiveKind::kAllGather, input.accumulation, payload, sent);
  }
  if (has_trainable(*input.model, unit)) {
    const ShardLayout gradients = unit_layout(*input.model, unit, by_rank, true);
    ledger.add(Phase::kBackward, CollectiveKind::kReduceScatter, input.accumulation,
               gradients.total() * element, (gradients.total() - gradients.count(rank)) * element);
  }
}

/// One broadcast per owner before forward and (if resharded) before backward, one reduce per owner
/// of something trainable.
void zero3_unit_traffic(const FormulaInput& input, const UnitShape& unit,
                        const std::vector<FlatLayout>& by_rank, int rank, Ledger& ledger) {
  const auto element = static_cast<std::int64_t>(size_of(input.dtype));
  const ShardLayout weights = unit_layout(*input.model, unit, by_rank, false);
  const ShardLayout gradients = unit_layout(*input.model, unit, by_rank, true);
  const bool again = gathers_again(input, unit) && reached_by_backward(*input.model, unit);
  for (int owner = 0; owner < input.world_size; ++owner) {
    if (weights.count(owner) > 0) {
      const std::int64_t payload = weights.count(owner) * element;
      const std::int64_t sent = owner == rank ? (input.world_size - 1) * payload : 0;
      ledger.add(Phase::kForward, CollectiveKind::kBroadcast, input.accumulation, payload, sent);
      if (again) {
        ledger.add(Phase::kBackward, CollectiveKind::kBroadcast, input.accumulation, payload, sent);
      }
    }
    if (gradients.count(owner) > 0) {
      const std::int64_t payload = gradients.count(owner) * element;
      ledger.add(Phase::kBackward, CollectiveKind::kReduce, input.accumulation, payload,
                 owner == rank ? 0 : payload);
    }
  }
}

/// What each rank keeps under this kind.
std::vector<Range> kept_by(FormulaKind kind, const FormulaInput& input, int rank) {
  switch (kind) {
    case FormulaKind::kSingle:
    case FormulaKind::kDdp:
      return keep_all(*input.model);
    case FormulaKind::kZero3:
      return keep_owned(*input.model, partition_owners(*input.model, input.world_size), rank);
    case FormulaKind::kFsdp:
      return keep_rows(*input.model, input.world_size, rank);
  }
  return {};
}

void check(const FormulaInput& input, int rank) {
  SHARDBENCH_CHECK(input.model != nullptr);
  SHARDBENCH_CHECK(input.world_size >= 1 && rank >= 0 && rank < input.world_size, "rank {} of {}",
                   rank, input.world_size);
  SHARDBENCH_CHECK_GE(input.accumulation, 1);
}

}  // namespace

std::vector<FormulaTraffic> formula_traffic(FormulaKind kind, const FormulaInput& input, int rank) {
  check(input, rank);
  Ledger ledger;
  if (kind == FormulaKind::kDdp) ddp_traffic(input, rank, ledger);
  if (kind == FormulaKind::kFsdp || kind == FormulaKind::kZero3) {
    std::vector<FlatLayout> by_rank;
    for (int r = 0; r < input.world_size; ++r) {
      by_rank.push_back(flatten(*input.model, kept_by(kind, input, r)));
    }
    for (const UnitShape& unit : plan_units(*input.model, input.units)) {
      if (kind == FormulaKind::kFsdp) {
        fsdp_unit_traffic(input, unit, by_rank, rank, ledger);
      } else {
        zero3_unit_traffic(input, unit, by_rank, rank, ledger);
      }
    }
  }
  return ledger.take();
}

FormulaMemory formula_memory(FormulaKind kind, const FormulaInput& input, int rank) {
  check(input, rank);
  const FlatLayout flat = flatten(*input.model, kept_by(kind, input, rank));
  const std::int64_t trainable = flat.trainable_elements;
  std::int64_t grad_extent = flat.trainable_extent;
  if (kind == FormulaKind::kDdp) {
    grad_extent = 0;
    for (const Bucket& bucket :
         plan_buckets(*input.model, input.bucket_cap_mib, input.first_bucket_mib)) {
      grad_extent += bucket.extent;
    }
  }
  FormulaMemory memory;
  memory.param = flat.elements * kMasterBytes;
  memory.grad = trainable * kMasterBytes;
  memory.optimizer = input.optimizer_moments * trainable * kMasterBytes;
  memory.padding = kMasterBytes * (flat.extent - flat.elements + grad_extent - trainable +
                                   input.optimizer_moments * (flat.trainable_extent - trainable));
  return memory;
}

std::int64_t unsharded_bound_bytes(const FormulaInput& input, int prefetch) {
  check(input, 0);
  SHARDBENCH_CHECK_GE(prefetch, 0);
  const ModelShape& model = *input.model;
  const auto element = static_cast<std::int64_t>(size_of(input.dtype));
  // Units of one anchor are entered together; those around them are open as well.
  struct Group {
    int anchor;
    std::vector<std::int64_t> units;
  };
  std::vector<Group> groups;  // in forward order, the root's first
  std::vector<std::int64_t> own(model.modules.size(), 0);
  for (const UnitShape& unit : plan_units(model, input.units)) {
    const std::int64_t bytes = unit_buffer(model, unit).extent * element;
    own[unit.anchor] += bytes;
    if (groups.empty() || groups.back().anchor != unit.anchor) groups.push_back({unit.anchor, {}});
    groups.back().units.push_back(bytes);
  }
  if (input.reshard_after_forward == FormulaInput::Reshard::kFalse) {
    return std::accumulate(own.begin(), own.end(), std::int64_t{0});  // whole after forward
  }
  const auto ahead = [&](auto begin, auto end) {
    std::int64_t sum = 0;
    int left = prefetch;
    for (auto group = begin; group != end; ++group) {
      for (std::int64_t bytes : group->units) sum += left-- > 0 ? bytes : 0;
    }
    return sum;
  };
  // The root is open all the time, so nobody waits for it on the way back.
  const auto first = groups.rend() - (!groups.empty() && groups.front().anchor == 0 ? 1 : 0);
  std::int64_t largest = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::int64_t open = 0;
    for (int m = groups[g].anchor; m >= 0; m = model.modules[m].parent) open += own[m];
    const auto here = groups.begin() + static_cast<std::ptrdiff_t>(g);
    const std::int64_t forward = ahead(here + 1, groups.end());
    const std::int64_t backward = g == 0 ? 0 : ahead(std::make_reverse_iterator(here), first);
    largest = std::max(largest, open + std::max(forward, backward));
  }
  return largest;
}

}  // namespace shardbench::sharding
