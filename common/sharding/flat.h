#pragma once

#include <cstdint>
#include <vector>

#include "common/core/dtype.h"
#include "common/sharding/layout.h"
#include "common/sharding/model_shape.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::sharding {

/// Elements per kPieceAlignment.
constexpr std::int64_t piece_elements(DType dtype) {
  return kPieceAlignment / static_cast<std::int64_t>(size_of(dtype));
}
inline constexpr std::int64_t kPieceElements = piece_elements(DType::kFloat32);

/// Part of one parameter in flat memory: elements [begin, begin + count) of it at `offset`.
struct Piece {
  int parameter = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t offset = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Pieces with the same (requires_grad, optimizer group), contiguous in flat memory.
struct FlatGroup {
  bool requires_grad = true;
  bool decay = true;
  std::int64_t offset = 0;  ///< of the group in the flat memory, elements
  std::int64_t extent = 0;  ///< elements, padding between pieces included
  std::vector<Piece> pieces;
};

/// One rank's flat memory (elements of one dtype): groups one after the other - trainable with
/// decay, trainable without, frozen - each piece on 64 bytes, pieces in canonical order, empty ones
/// left out.
struct FlatLayout {
  std::vector<FlatGroup> groups;
  std::int64_t extent = 0;            ///< elements, all groups, padding included
  std::int64_t trainable_extent = 0;  ///< the trainable groups stand first
  std::int64_t elements = 0;          ///< without padding
  std::int64_t trainable_elements = 0;

  /// The piece of `parameter`, or nullptr if this rank keeps none of it.
  const Piece* piece_of(int parameter) const;

 private:
  friend FlatLayout flatten(const ModelShape&, const std::vector<Range>&, DType);
  friend FlatLayout flatten_in_whole(const ModelShape&, const std::vector<Range>&, DType);
  std::vector<std::pair<int, int>> where_;  ///< by parameter: (group, piece), -1 if none
};

/// Lays out the given element range of each parameter (by index; empty ranges allowed) in memory of
/// the dtype.
FlatLayout flatten(const ModelShape& model, const std::vector<Range>& kept,
                   DType dtype = DType::kFloat32);

/// The same ranges in memory of `dtype` that has room for all of every parameter: where each lies
/// in flatten(model, keep_all(model), dtype). Only `elements` count what is kept.
FlatLayout flatten_in_whole(const ModelShape& model, const std::vector<Range>& kept,
                            DType dtype = DType::kFloat32);

/// What each rank keeps, by parameter, as element ranges.
std::vector<Range> keep_all(const ModelShape& model);
/// Rows: rank's slice of ceil(rows/W) rows of dimension 0.
std::vector<Range> keep_rows(const ModelShape& model, int world_size, int rank);
/// Whole tensors whose owner is `rank`.
std::vector<Range> keep_owned(const ModelShape& model, const std::vector<int>& owner, int rank);

/// Owner of each parameter: parameters by falling size (ties: canonical order), each to the rank
/// with the fewest elements so far (ties: lowest rank).
std::vector<int> partition_owners(const ModelShape& model, int world_size);

/// A unit's full buffer: its parameters in canonical order, each on 64 bytes.
struct UnitBuffer {
  std::vector<std::int64_t> offsets;  ///< by position in UnitShape::parameters, elements
  std::int64_t extent = 0;
};
UnitBuffer unit_buffer(const ModelShape& model, const UnitShape& unit,
                       DType dtype = DType::kFloat32);

/// Joins a unit's full buffer, of elements of `dtype`, with every rank's flat memory: the layout of
/// its collectives. With `trainable_only`, frozen parameters are left out (gradients).
ShardLayout unit_layout(const ModelShape& model, const UnitShape& unit,
                        const std::vector<FlatLayout>& by_rank, bool trainable_only,
                        DType dtype = DType::kFloat32);

/// DDP's buckets: trainable parameters in reverse canonical order, a new bucket when the next
/// would pass the cap (the first bucket has its own cap where that is smaller); a tensor is never
/// split.
struct Bucket {
  std::vector<int> parameters;        ///< in order of their place in the bucket
  std::vector<std::int64_t> offsets;  ///< elements from the bucket's start, on 64 bytes
  std::int64_t begin = 0;             ///< elements from the start of the gradient memory
  std::int64_t extent = 0;            ///< elements, padding included
  bool as_rows = false;               ///< it has one table, whose gradient travels as rows
};
/// With `sparse_embedding`, every table that has a row gradient stands by itself.
std::vector<Bucket> plan_buckets(const ModelShape& model, double cap_mib, double first_cap_mib,
                                 bool sparse_embedding = false);

}  // namespace shardbench::sharding
