#include "common/sharding/flat.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "common/core/error.h"

namespace shardbench::sharding {
namespace {

std::int64_t align_up(std::int64_t elements, DType dtype = DType::kFloat32) {
  const std::int64_t piece = piece_elements(dtype);
  return (elements + piece - 1) / piece * piece;
}

/// Place of a parameter's group in flat memory: trainable with decay, trainable without, frozen.
int group_rank(const ParameterShape& parameter) {
  if (!parameter.requires_grad) return 2;
  return parameter.decay ? 0 : 1;
}

}  // namespace

const Piece* FlatLayout::piece_of(int parameter) const {
  const auto [group, piece] = where_.at(parameter);
  return group < 0 ? nullptr : &groups[group].pieces[piece];
}

FlatLayout flatten(const ModelShape& model, const std::vector<Range>& kept, DType dtype) {
  SHARDBENCH_CHECK_EQ(kept.size(), model.parameters.size());
  FlatLayout layout;
  layout.where_.assign(kept.size(), {-1, -1});
  for (int wanted = 0; wanted < 3; ++wanted) {
    FlatGroup group;
    group.requires_grad = wanted != 2;
    group.decay = wanted == 0;
    group.offset = layout.extent;
    std::int64_t end = group.offset;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const Range& range = kept[i];
      SHARDBENCH_CHECK(
          0 <= range.begin && range.begin <= range.end && range.end <= model.parameters[i].numel(),
          "{}", model.parameters[i].name);
      if (range.size() == 0 || group_rank(model.parameters[i]) != wanted) continue;
      layout.where_[i] = {static_cast<int>(layout.groups.size()),
                          static_cast<int>(group.pieces.size())};
      group.pieces.push_back({static_cast<int>(i), range.begin, range.size(), end});
      end += align_up(range.size(), dtype);
      layout.elements += range.size();
      if (group.requires_grad) layout.trainable_elements += range.size();
    }
    if (group.pieces.empty()) continue;
    group.extent = end - group.offset;
    layout.extent = end;
    if (group.requires_grad) layout.trainable_extent = end;
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

FlatLayout flatten_in_whole(const ModelShape& model, const std::vector<Range>& kept, DType dtype) {
  const FlatLayout whole = flatten(model, keep_all(model), dtype);
  FlatLayout layout = flatten(model, kept, dtype);
  for (FlatGroup& group : layout.groups) {
    for (Piece& piece : group.pieces) {
      piece.offset = whole.piece_of(piece.parameter)->offset + piece.begin;
    }
    group.offset = group.pieces.front().offset;
    group.extent = group.pieces.back().offset + group.pieces.back().count - group.offset;
  }
  layout.extent = whole.extent;
  layout.trainable_extent = whole.trainable_extent;
  return layout;
}

std::vector<Range> keep_all(const ModelShape& model) {
  std::vector<Range> kept;
  kept.reserve(model.parameters.size());
  for (const ParameterShape& parameter : model.parameters) kept.push_back({0, parameter.numel()});
  return kept;
}

std::vector<Range> keep_rows(const ModelShape& model, int world_size, int rank) {
  std::vector<Range> kept;
  kept.reserve(model.parameters.size());
  for (const ParameterShape& parameter : model.parameters) {
    const Range rows = slice_of(parameter.rows(), world_size, rank);
    const std::int64_t width = parameter.row_elements();
    kept.push_back({rows.begin * width, rows.end * width});
  }
  return kept;
}

std::vector<Range> keep_owned(const ModelShape& model, const std::vector<int>& owner, int rank) {
  SHARDBENCH_CHECK_EQ(owner.size(), model.parameters.size());
  std::vector<Range> kept(owner.size());
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] == rank) kept[i] = {0, model.parameters[i].numel()};
  }
  return kept;
}

std::vector<int> partition_owners(const ModelShape& model, int world_size) {
  SHARDBENCH_CHECK_GE(world_size, 1);
  std::vector<std::size_t> order(model.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return model.parameters[a].numel() > model.parameters[b].numel();
  });
  // (elements so far, rank): the lightest rank, the lowest of equal ones, is on top.
  using Load = std::pair<std::int64_t, int>;
  std::vector<Load> loads;
  loads.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) loads.emplace_back(0, rank);  // already a heap
  std::vector<int> owner(model.parameters.size(), 0);
  for (std::size_t i : order) {
    std::pop_heap(loads.begin(), loads.end(), std::greater<>());
    owner[i] = loads.back().second;
    loads.back().first += model.parameters[i].numel();
    std::push_heap(loads.begin(), loads.end(), std::greater<>());
  }
  return owner;
}

UnitBuffer unit_buffer(const ModelShape& model, const UnitShape& unit, DType dtype) {
  UnitBuffer buffer;
  buffer.offsets.reserve(unit.parameters.size());
  for (int parameter : unit.parameters) {
    buffer.offsets.push_back(buffer.extent);
    buffer.extent += align_up(model.parameters.at(parameter).numel(), dtype);
  }
  return buffer;
}

ShardLayout unit_layout(const ModelShape& model, const UnitShape& unit,
                        const std::vector<FlatLayout>& by_rank, bool trainable_only, DType dtype) {
  const UnitBuffer buffer = unit_buffer(model, unit, dtype);
  std::vector<std::vector<Segment>> segments(by_rank.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const int parameter = unit.parameters[i];
      if (trainable_only && !model.parameters.at(parameter).requires_grad) continue;
      const Piece* piece = by_rank[rank].piece_of(parameter);
      if (piece == nullptr) continue;
      segments[rank].push_back({piece->offset, buffer.offsets[i] + piece->begin, piece->count});
    }
  }
  return ShardLayout(std::move(segments));
}

std::vector<Bucket> plan_buckets(const ModelShape& model, double cap_mib, double first_cap_mib,
                                 bool sparse_embedding) {
  SHARDBENCH_CHECK(cap_mib > 0 && first_cap_mib > 0, "bucket caps {} and {} MiB", cap_mib,
                   first_cap_mib);
  constexpr double kBytesPerMib = 1024.0 * 1024.0;
  std::vector<Bucket> buckets;
  for (std::size_t left = model.parameters.size(); left > 0; --left) {
    const ParameterShape& parameter = model.parameters[left - 1];
    if (!parameter.requires_grad) continue;
    const std::int64_t extent = align_up(parameter.numel());
    const double cap =
        (buckets.size() <= 1 ? std::min(first_cap_mib, cap_mib) : cap_mib) * kBytesPerMib;
    const bool full =
        !buckets.empty() && static_cast<double>((buckets.back().extent + extent) * 4) > cap;
    const bool as_rows = sparse_embedding && parameter.has_row_gradient();
    if (buckets.empty() || full || as_rows || buckets.back().as_rows) {
      const std::int64_t begin = buckets.empty() ? 0 : buckets.back().begin + buckets.back().extent;
      buckets.push_back({{}, {}, begin, 0, as_rows});
    }
    Bucket& bucket = buckets.back();
    bucket.parameters.push_back(static_cast<int>(left - 1));
    bucket.offsets.push_back(bucket.extent);
    bucket.extent += extent;
  }
  return buckets;
}

}  // namespace shardbench::sharding
