// Persistent bytes of a rank. Sources of the rules: partition_owners and slice_of.

#include <algorithm>
#include <numeric>

#include "common/core/error.h"
#include "common/sharding/flat.h"
#include "common/sharding/formulas.h"

namespace shardbench::sharding {
namespace {

constexpr std::int64_t kMasterBytes = 4;  // master weights, kept gradients and moments are fp32

/// How parameters are spread over ranks.
enum class Spread { kWhole, kOwner, kRows };

/// Elements of one rank, and those of them that have gradients; `extent` includes padding.
struct Share {
  std::int64_t elements = 0;
  std::int64_t extent = 0;
  std::int64_t trainable = 0;
  std::int64_t trainable_extent = 0;

  void add(const Share& other, std::int64_t sign = 1) {
    elements += sign * other.elements;
    extent += sign * other.extent;
    trainable += sign * other.trainable;
    trainable_extent += sign * other.trainable_extent;
  }
  std::int64_t padding() const { return extent - elements; }
  std::int64_t trainable_padding() const { return trainable_extent - trainable; }
};

/// One piece of `count` elements in memory of the dtype.
Share piece_of(std::int64_t count, bool requires_grad, DType dtype) {
  const std::int64_t line = piece_elements(dtype);
  const std::int64_t extent = (count + line - 1) / line * line;
  return {count, extent, requires_grad ? count : 0, requires_grad ? extent : 0};
}

/// What every rank has of the parameters, by rank. `owner`: only where they lie at owners.
std::vector<Share> shares_of(const ModelShape& model, std::span<const int> parameters,
                             Spread spread, const std::vector<int>& owner, int world_size,
                             DType dtype = DType::kFloat32) {
  std::vector<Share> shares(static_cast<std::size_t>(world_size) + 1);
  for (const int p : parameters) {
    const ParameterShape& parameter = model.parameters[p];
    switch (spread) {
      case Spread::kWhole:
        shares[0].add(piece_of(parameter.numel(), parameter.requires_grad, dtype));
        break;
      case Spread::kOwner:
        shares[owner[p]].add(piece_of(parameter.numel(), parameter.requires_grad, dtype));
        break;
      case Spread::kRows:
        // Steps up and down; summed up below.
        for (const SliceRun& run : slice_runs(parameter.rows(), world_size)) {
          const Share piece =
              piece_of(run.count * parameter.row_elements(), parameter.requires_grad, dtype);
          shares[run.first_rank].add(piece);
          shares[run.last_rank + 1].add(piece, -1);
        }
        break;
    }
  }
  shares.pop_back();
  if (spread == Spread::kRows) {
    for (std::size_t r = 1; r < shares.size(); ++r) shares[r].add(shares[r - 1]);
  } else if (spread == Spread::kWhole) {
    std::fill(shares.begin() + 1, shares.end(), shares[0]);
  }
  return shares;
}

/// How each kind of state is spread.
struct Spreads {
  Spread weights, gradients, optimizer;
};

Spreads spreads_of(FormulaKind kind) {
  switch (kind) {
    case FormulaKind::kSingle:
    case FormulaKind::kDdp:
      return {Spread::kWhole, Spread::kWhole, Spread::kWhole};
    case FormulaKind::kZero1:
      return {Spread::kWhole, Spread::kWhole, Spread::kOwner};
    case FormulaKind::kZero2:
      return {Spread::kWhole, Spread::kOwner, Spread::kOwner};
    case FormulaKind::kZero3:
      return {Spread::kOwner, Spread::kOwner, Spread::kOwner};
    case FormulaKind::kFsdp:
      return {Spread::kRows, Spread::kRows, Spread::kRows};
  }
  return {};
}

/// What one rank keeps of the weights: `kept` in fp32; where operations compute in another dtype,
/// whole weights are kept in that (`read`), beside fp32 masters of what this rank steps.
void add_weights(const FormulaInput& input, bool whole, const Share& kept, const Share& read,
                 const Share& stepped, FormulaMemory& memory) {
  const auto element = static_cast<std::int64_t>(size_of(input.compute_dtype));
  const bool converts = input.compute_dtype != DType::kFloat32;
  if (whole && converts) {
    memory.param = read.elements * element + stepped.trainable * kMasterBytes;
    memory.padding = read.padding() * element + stepped.trainable_padding() * kMasterBytes;
    return;
  }
  memory.param = kept.elements * kMasterBytes;
  memory.padding = kept.padding() * kMasterBytes;
  if (whole || !input.in_place) return;
  // Of the one block that all ranks share, each has its part put down, without the padding.
  if (converts) {
    memory.param += kept.elements * element;
  } else {
    memory.padding = 0;
  }
}

}  // namespace

std::vector<FormulaMemory> formula_memory_by_rank(FormulaKind kind, const FormulaInput& input,
                                                  std::span<const int> parameters) {
  SHARDBENCH_CHECK(input.model != nullptr);
  SHARDBENCH_CHECK_GE(input.world_size, 1);
  const Spreads spreads = spreads_of(kind);
  std::vector<int> owner;
  if (spreads.optimizer == Spread::kOwner) owner = partition_owners(*input.model, input.world_size);
  const auto shares = [&](Spread spread, DType dtype = DType::kFloat32) {
    return shares_of(*input.model, parameters, spread, owner, input.world_size, dtype);
  };
  const std::vector<Share> weights = shares(spreads.weights);
  const std::vector<Share> read = shares(Spread::kWhole, input.compute_dtype);
  const std::vector<Share> gradients = shares(spreads.gradients);
  const std::vector<Share> stepped = shares(spreads.optimizer);

  std::vector<FormulaMemory> ranks(weights.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    FormulaMemory& memory = ranks[r];
    add_weights(input, spreads.weights == Spread::kWhole, weights[r], read[r], stepped[r], memory);
    if (!input.optimizer_in_backward) {
      memory.grad = gradients[r].trainable * kMasterBytes;
      memory.padding += gradients[r].trainable_padding() * kMasterBytes;
    }
    memory.optimizer = input.optimizer_moments * stepped[r].trainable * kMasterBytes;
    memory.padding += input.optimizer_moments * stepped[r].trainable_padding() * kMasterBytes;
  }
  return ranks;
}

FormulaMemory formula_memory(FormulaKind kind, const FormulaInput& input, int rank) {
  SHARDBENCH_CHECK(input.model != nullptr);
  SHARDBENCH_CHECK(rank >= 0 && rank < input.world_size, "rank {} of {}", rank, input.world_size);
  std::vector<int> all(input.model->parameters.size());
  std::iota(all.begin(), all.end(), 0);
  return formula_memory_by_rank(kind, input, all)[static_cast<std::size_t>(rank)];
}

}  // namespace shardbench::sharding
