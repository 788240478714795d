#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/parameter.h"
#include "common/sharding/layout.h"

namespace shardbench::train {

/// One rank's rows of a table's gradient: row `ids[i]` of the table lies at `rows` + i * width.
/// A negative id stands for none.
struct RankRows {
  std::span<const std::int64_t> ids;  ///< none twice
  const float* rows = nullptr;
};

/// The average over ranks of gradients whose other rows are zero: elements `own` of the table
/// (whole rows of `width`) go to, or with `accumulate` are added to, `to`. Ranks are added in
/// order, then multiplied once, as ReduceOp::kAverage of whole gradients does: the same bits.
void average_rows(std::span<const RankRows> by_rank, std::int64_t width, sharding::Range own,
                  float* to, bool accumulate);

/// The gradient of a table that tokens look up (fp32), as the rows that this rank's tokens have in
/// it. A row is added up as ops::embedding_weight_grad adds it up in a whole gradient.
class RowGradient {
 public:
  /// Both outlive it.
  RowGradient(const Parameter& table, comm::Communicator& comm) : table_(&table), comm_(&comm) {}

  /// Adds row i of `grad` [..., width] to row indices[i] (int64).
  void add(const at::Tensor& indices, const at::Tensor& grad);
  /// Forgets what was added.
  void clear();
  /// Averages over ranks what was added (see average_rows) and forgets it. Collective: one
  /// all_gather of ids and rows, for as many rows as any rank has looked up, or as the table has
  /// where those are fewer (sharding::row_message_bytes). Waits.
  void reduce(sharding::Range own, float* to, bool accumulate, comm::CallTag tag);

 private:
  /// As many as this rank has added, at least; the same on every rank.
  std::int64_t agree_on_slots() const;
  void pack(std::int64_t slots, std::byte* message) const;
  std::int64_t width() const { return table_->row_elements(); }

  const Parameter* table_;
  comm::Communicator* comm_;
  std::int64_t looked_up_ = 0;  ///< rows, those that came twice counted twice
  std::vector<std::int64_t> ids_;
  std::unordered_map<std::int64_t, std::int64_t> place_;  ///< of an id in ids_
  at::Tensor rows_;                                       ///< [at least ids_.size(), width]
};

}  // namespace shardbench::train
