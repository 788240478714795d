#include "common/train/row_gradient.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/comm/reduce.h"
#include "common/core/error.h"
#include "common/memory/category.h"
#include "common/ops/embedding.h"
#include "common/sharding/formulas.h"

namespace shardbench::train {

namespace {

constexpr std::int64_t kNone = -1;

}  // namespace

void average_rows(std::span<const RankRows> by_rank, std::int64_t width, sharding::Range own,
                  float* to, bool accumulate) {
  SHARDBENCH_CHECK(width > 0 && own.begin % width == 0 && own.size() % width == 0,
                   "elements {} to {} are no rows of {}", own.begin, own.end, width);
  if (!accumulate) std::fill_n(to, own.size(), 0.0f);
  const std::int64_t first = own.begin / width;
  const std::int64_t end = own.end / width;
  std::vector<std::pair<std::int64_t, const void*>> found;  // by rank, so stable sorting keeps that
  for (const RankRows& rank : by_rank) {
    for (std::size_t i = 0; i < rank.ids.size(); ++i) {
      const std::int64_t id = rank.ids[i];
      if (id < first || id >= end) continue;
      found.emplace_back(id, rank.rows + static_cast<std::int64_t>(i) * width);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const void*> sources;
  for (std::size_t i = 0; i < found.size();) {
    const std::int64_t id = found[i].first;
    sources.clear();
    for (; i < found.size() && found[i].first == id; ++i) sources.push_back(found[i].second);
    void* const row = to + (id - first) * width;
    // A rank without the row would add zero, which changes nothing.
    comm::reduce_elements(DType::kFloat32, comm::ReduceOp::kAverage, sources, {&row, 1}, width,
                          accumulate, by_rank.size());
  }
}

void RowGradient::add(const at::Tensor& indices, const at::Tensor& grad) {
  if (indices.numel() == 0) return;
  const at::Tensor flat = indices.contiguous().view({indices.numel()});
  const auto* index = flat.const_data_ptr<std::int64_t>();
  const at::Tensor places = at::empty_like(flat);
  auto* place = places.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const auto [known, added] =
        place_.try_emplace(index[i], static_cast<std::int64_t>(ids_.size()));
    if (added) ids_.push_back(index[i]);
    place[i] = known->second;
  }
  looked_up_ += flat.numel();
  // By the number of tokens, which is the same in every step, unlike that of distinct ones.
  const std::int64_t room = std::min(looked_up_, table_->rows());
  if (!rows_.defined() || rows_.size(0) < room) {
    const memory::CategoryScope scope(memory::Category::kUnshardedGrad);
    const at::Tensor larger = at::zeros({room, width()}, at::kFloat);
    if (rows_.defined()) larger.narrow(0, 0, rows_.size(0)).copy_(rows_);
    rows_ = larger;
  }
  ops::embedding_weight_grad(grad, places, rows_, /*accumulate=*/true);
}

void RowGradient::clear() {
  looked_up_ = 0;
  ids_.clear();
  place_.clear();
  rows_.reset();
}

std::int64_t RowGradient::agree_on_slots() const {
  std::int64_t most = looked_up_;
  comm::Work work = comm_->all_reduce({&most, 1, DType::kInt64}, comm::ReduceOp::kMax,
                                      {"rows looked up in " + table_->name(), Phase::kMetrics});
  work.wait();
  work.wait_released();
  return std::min(most, table_->rows());
}

/// Ids, then their rows, as far as there are some.
void RowGradient::pack(std::int64_t slots, std::byte* message) const {
  std::fill_n(message, sharding::row_message_bytes(slots, width()), std::byte{0});
  std::vector<std::int64_t> ids = ids_;
  ids.resize(static_cast<std::size_t>(slots), kNone);
  std::memcpy(message, ids.data(), ids.size() * sizeof(std::int64_t));
  if (ids_.empty()) return;
  std::memcpy(message + ids.size() * sizeof(std::int64_t), rows_.const_data_ptr(),
              ids_.size() * static_cast<std::size_t>(width()) * sizeof(float));
}

void RowGradient::reduce(sharding::Range own, float* to, bool accumulate, comm::CallTag tag) {
  const std::int64_t slots = agree_on_slots();
  const std::int64_t bytes = sharding::row_message_bytes(slots, width());
  const auto world_size = static_cast<std::size_t>(comm_->world_size());
  std::vector<std::vector<std::int64_t>> ids(world_size);
  std::vector<RankRows> by_rank(world_size);
  comm::SymmetricMemory message;
  at::Tensor all;
  comm::Work work;
  if (slots > 0) {
    {
      const memory::CategoryScope scope(memory::Category::kCommBuffer);
      message = comm_->symmetric_empty(static_cast<std::size_t>(bytes));
      all = at::empty({static_cast<std::int64_t>(world_size) * bytes}, at::kByte);
    }
    pack(slots, static_cast<std::byte*>(message.data()));
    const auto layout =
        sharding::ShardLayout::contiguous(std::vector<std::int64_t>(world_size, bytes));
    work = comm_->all_gather(layout, {message.data(), bytes, DType::kUInt8},
                             {all.mutable_data_ptr(), all.numel(), DType::kUInt8}, tag);
    work.wait();
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      const auto* part =
          all.const_data_ptr<std::uint8_t>() + static_cast<std::int64_t>(rank) * bytes;
      ids[rank].resize(static_cast<std::size_t>(slots));
      std::memcpy(ids[rank].data(), part, ids[rank].size() * sizeof(std::int64_t));
      const std::uint8_t* rows = part + ids[rank].size() * sizeof(std::int64_t);
      by_rank[rank] = {ids[rank], reinterpret_cast<const float*>(rows)};
    }
  }
  average_rows(by_rank, width(), own, to, accumulate);
  work.wait_released();
  clear();
}

}  // namespace shardbench::train
