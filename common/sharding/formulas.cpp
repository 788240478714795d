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

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

/// Whether the gradient travels as rows.
bool as_rows(const FormulaInput& input, int parameter) {
  return input.sparse_embedding && input.model->parameters[parameter].has_row_gradient();
}

/// The unit's parameters whose gradients travel whole.
UnitShape with_whole_gradients(const FormulaInput& input, const UnitShape& unit) {
  UnitShape whole{unit.name, unit.anchor, {}};
  for (const int p : unit.parameters) {
    if (input.model->parameters[p].requires_grad && !as_rows(input, p)) {
      whole.parameters.push_back(p);
    }
  }
  return whole;
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

/// Whether a unit is gathered for backward, too.
bool gathers_again(const FormulaInput& input, const UnitShape& unit) {
  if (input.in_place || !reached_by_backward(*input.model, unit)) return false;
  if (!is_read_in_backward(*input.model, unit.parameters)) return false;
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

/// One all_gather of ids and rows for every table among the parameters whose gradient travels so,
/// `calls` times: as many rows as `tokens` look up, or as the table has where those are fewer.
void rows_traffic(const FormulaInput& input, const std::vector<int>& parameters,
                  std::int64_t tokens, int calls, Ledger& ledger) {
  for (const int p : parameters) {
    if (!as_rows(input, p)) continue;
    const ParameterShape& table = input.model->parameters[p];
    const std::int64_t part =
        row_message_bytes(std::min(tokens, table.rows()), table.row_elements());
    ledger.add(Phase::kBackward, CollectiveKind::kAllGather, calls, input.world_size * part,
               (input.world_size - 1) * part);
  }
}

/// all_reduce of every bucket once per step. Sent by a rank whose slice is s of S: its parts of
/// the other slices, S - s, then its reduced slice to everybody else, (W-1) s.
void ddp_traffic(const FormulaInput& input, int rank, Ledger& ledger) {
  const int world_size = input.world_size;
  const std::int64_t element = bytes_of(input.reduce_dtype);
  for (const Bucket& bucket : plan_buckets(*input.model, input.bucket_cap_mib,
                                           input.first_bucket_mib, input.sparse_embedding)) {
    if (bucket.as_rows) {
      rows_traffic(input, bucket.parameters, input.tokens * input.accumulation, 1, ledger);
      continue;
    }
    const std::int64_t payload = bucket.extent * element;
    const std::int64_t slice =
        slice_of(bucket.extent, world_size, rank, kPieceAlignment / element).size() * element;
    ledger.add(Phase::kBackward, CollectiveKind::kAllReduce, 1, payload,
               payload + (world_size - 2) * slice);
  }
}

/// One reduce to every owner of something, `calls` times: all ranks but the owner send its part.
void reduce_to_owners(const FormulaInput& input, const std::vector<std::int64_t>& elements,
                      int calls, int rank, Ledger& ledger) {
  for (int owner = 0; owner < input.world_size; ++owner) {
    if (elements[owner] == 0) continue;
    const std::int64_t payload = elements[owner] * bytes_of(input.reduce_dtype);
    ledger.add(Phase::kBackward, CollectiveKind::kReduce, calls, payload,
               owner == rank ? 0 : payload);
  }
}

/// One broadcast from every owner of something, `calls` times: it sends its part to all others.
void broadcast_from_owners(const FormulaInput& input, Phase phase,
                           const std::vector<std::int64_t>& elements, int calls, int rank,
                           Ledger& ledger) {
  for (int owner = 0; owner < input.world_size; ++owner) {
    if (elements[owner] == 0) continue;
    const std::int64_t payload = elements[owner] * bytes_of(input.compute_dtype);
    ledger.add(phase, CollectiveKind::kBroadcast, calls, payload,
               owner == rank ? (input.world_size - 1) * payload : 0);
  }
}

/// Elements of the given parameters by owner; frozen ones only where asked for.
std::vector<std::int64_t> by_owner(const FormulaInput& input, const std::vector<int>& owner,
                                   const std::vector<int>& parameters, bool frozen_too) {
  std::vector<std::int64_t> elements(input.world_size, 0);
  for (int p : parameters) {
    const ParameterShape& parameter = input.model->parameters[p];
    if (frozen_too || parameter.requires_grad) elements[owner[p]] += parameter.numel();
  }
  return elements;
}

/// A unit's gradients go to their owners in every micro-batch.
void reduce_unit(const FormulaInput& input, const std::vector<int>& owner, const UnitShape& unit,
                 int rank, Ledger& ledger) {
  const UnitShape whole = with_whole_gradients(input, unit);
  reduce_to_owners(input, by_owner(input, owner, whole.parameters, false), input.accumulation, rank,
                   ledger);
  rows_traffic(input, unit.parameters, input.tokens, input.accumulation, ledger);
}

/// zero1: a bucket's gradients go to their owners once per step; zero2: a unit's, in every
/// micro-batch. Then owners send the weights they have changed.
void zero12_traffic(FormulaKind kind, const FormulaInput& input, int rank, Ledger& ledger) {
  const std::vector<int> owner = partition_owners(*input.model, input.world_size);
  if (kind == FormulaKind::kZero1) {
    for (const Bucket& bucket : plan_buckets(*input.model, input.bucket_cap_mib,
                                             input.first_bucket_mib, input.sparse_embedding)) {
      if (bucket.as_rows) {
        rows_traffic(input, bucket.parameters, input.tokens * input.accumulation, 1, ledger);
        continue;
      }
      reduce_to_owners(input, by_owner(input, owner, bucket.parameters, false), 1, rank, ledger);
    }
  } else {
    for (const UnitShape& unit : plan_units(*input.model, input.units)) {
      reduce_unit(input, owner, unit, rank, ledger);
    }
  }
  std::vector<int> all(owner.size());
  std::iota(all.begin(), all.end(), 0);
  broadcast_from_owners(input, Phase::kOptimizer, by_owner(input, owner, all, false), 1, rank,
                        ledger);
}

/// all_gather before forward, again before backward if resharded, reduce_scatter in backward.
void fsdp_traffic(const FormulaInput& input, int rank, Ledger& ledger) {
  std::vector<FlatLayout> by_rank;
  for (int r = 0; r < input.world_size; ++r) {
    by_rank.push_back(flatten(*input.model, keep_rows(*input.model, input.world_size, r)));
  }
  const std::int64_t weight = bytes_of(input.compute_dtype);
  const std::int64_t gradient = bytes_of(input.reduce_dtype);
  for (const UnitShape& unit : plan_units(*input.model, input.units)) {
    const ShardLayout weights = unit_layout(*input.model, unit, by_rank, false);
    const std::int64_t payload = weights.total() * weight;
    const std::int64_t sent = (input.world_size - 1) * weights.count(rank) * weight;
    if (!input.in_place)
      ledger.add(Phase::kForward, CollectiveKind::kAllGather, input.accumulation, payload, sent);
    if (gathers_again(input, unit)) {
      ledger.add(Phase::kBackward, CollectiveKind::kAllGather, input.accumulation, payload, sent);
    }
    rows_traffic(input, unit.parameters, input.tokens, input.accumulation, ledger);
    const UnitShape whole = with_whole_gradients(input, unit);
    if (whole.parameters.empty()) continue;
    const ShardLayout gradients = unit_layout(*input.model, whole, by_rank, true);
    ledger.add(Phase::kBackward, CollectiveKind::kReduceScatter, input.accumulation,
               gradients.total() * gradient,
               (gradients.total() - gradients.count(rank)) * gradient);
  }
}

/// One broadcast per owner before forward and (if resharded) before backward, one reduce per owner
/// of something trainable.
void zero3_traffic(const FormulaInput& input, int rank, Ledger& ledger) {
  const std::vector<int> owner = partition_owners(*input.model, input.world_size);
  for (const UnitShape& unit : plan_units(*input.model, input.units)) {
    const std::vector<std::int64_t> weights = by_owner(input, owner, unit.parameters, true);
    if (!input.in_place) {
      broadcast_from_owners(input, Phase::kForward, weights, input.accumulation, rank, ledger);
    }
    if (gathers_again(input, unit)) {
      broadcast_from_owners(input, Phase::kBackward, weights, input.accumulation, rank, ledger);
    }
    reduce_unit(input, owner, unit, rank, ledger);
  }
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
  switch (kind) {
    case FormulaKind::kSingle:
      break;
    case FormulaKind::kDdp:
      ddp_traffic(input, rank, ledger);
      break;
    case FormulaKind::kZero1:
    case FormulaKind::kZero2:
      zero12_traffic(kind, input, rank, ledger);
      break;
    case FormulaKind::kZero3:
      zero3_traffic(input, rank, ledger);
      break;
    case FormulaKind::kFsdp:
      fsdp_traffic(input, rank, ledger);
      break;
  }
  return ledger.take();
}

std::int64_t unsharded_bound_bytes(const FormulaInput& input, int prefetch) {
  check(input, 0);
  if (input.in_place) return 0;
  SHARDBENCH_CHECK_GE(prefetch, 0);
  const ModelShape& model = *input.model;
  // Units of one anchor are entered together; those around them are open as well.
  struct Group {
    int anchor;
    std::vector<std::int64_t> units;
  };
  std::vector<Group> groups;  // in forward order, the root's first
  std::vector<std::int64_t> own(model.modules.size(), 0);
  for (const UnitShape& unit : plan_units(model, input.units)) {
    const std::int64_t bytes =
        unit_buffer(model, unit, input.compute_dtype).extent * bytes_of(input.compute_dtype);
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
