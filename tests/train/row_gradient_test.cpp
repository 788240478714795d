#include "common/train/row_gradient.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/comm/local/local.h"
#include "common/comm/reduce.h"
#include "common/core/error.h"
#include "common/modules/parameter.h"
#include "common/ops/embedding.h"
#include "tests/support/strategy_case.h"

namespace shardbench::train {
namespace {

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kWidth = 5;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Three ranks with rows in common, with values whose sum depends on the order.
struct ThreeRanks {
  std::vector<std::vector<std::int64_t>> ids = {{4, 0, 6}, {6, 4, -1}, {4, 2, 6}};
  std::vector<at::Tensor> rows;
  ThreeRanks() {
    for (const double factor : {0.37, 31.7, 1.9}) {  // so that few sums are exact
      rows.push_back(testing::fixed({3, kWidth}, static_cast<int>(rows.size())) * factor);
    }
  }
  /// `order`: of the ranks.
  std::vector<float> averaged(const std::vector<std::size_t>& order, sharding::Range own,
                              bool accumulate) const {
    std::vector<RankRows> by_rank;
    for (const std::size_t rank : order) {
      by_rank.push_back({ids[rank], rows[rank].const_data_ptr<float>()});
    }
    std::vector<float> out(static_cast<std::size_t>(own.size()), 0.3F);
    average_rows(by_rank, kWidth, own, out.data(), accumulate);
    return out;
  }
  /// The same by whole gradients.
  std::vector<float> whole(sharding::Range own, bool accumulate) const {
    std::vector<std::vector<float>> full(3, std::vector<float>(kRows * kWidth, 0.0F));
    std::vector<const void*> sources;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (ids[rank][i] < 0) continue;
        std::memcpy(full[rank].data() + ids[rank][i] * kWidth,
                    rows[rank].const_data_ptr<float>() + static_cast<std::int64_t>(i) * kWidth,
                    kWidth * sizeof(float));
      }
      sources.push_back(full[rank].data() + own.begin);
    }
    std::vector<float> out(static_cast<std::size_t>(own.size()), 0.3F);
    void* const to = out.data();
    comm::reduce_elements(DType::kFloat32, comm::ReduceOp::kAverage, sources, {&to, 1}, own.size(),
                          accumulate);
    return out;
  }
};

TEST(AverageRows, HasTheBitsOfWholeGradients) {
  const ThreeRanks ranks;
  for (const bool accumulate : {false, true}) {
    for (const sharding::Range own :
         {sharding::Range{0, 35}, sharding::Range{15, 35}, sharding::Range{10, 10}}) {
      EXPECT_TRUE(
          same_bits(ranks.averaged({0, 1, 2}, own, accumulate), ranks.whole(own, accumulate)))
          << own.begin << " to " << own.end << (accumulate ? ", added" : "");
    }
  }
}

TEST(AverageRows, AnotherOrderOfRanksIsNoticed) {
  const ThreeRanks ranks;
  EXPECT_FALSE(same_bits(ranks.averaged({2, 1, 0}, {0, 35}, false), ranks.whole({0, 35}, false)));
  EXPECT_FALSE(same_bits(ranks.averaged({0, 2, 1}, {0, 35}, false), ranks.whole({0, 35}, false)));
}

TEST(AverageRows, RefusesPartsOfRows) {
  std::vector<float> out(35);
  EXPECT_THROW(average_rows({}, kWidth, {1, 6}, out.data(), false), InvariantError);
}

TEST(RowGradient, AddsUpAsAWholeGradientDoes) {
  Parameter table("embed.weight", {kRows, kWidth}, Init::constant(0));
  const auto comm = comm::make_local();
  RowGradient rows(table, *comm);
  at::Tensor whole = at::full({kRows, kWidth}, 9.0F);
  const std::vector<at::Tensor> indices = {at::tensor({3, 3, 1, 3}, at::kLong).view({2, 2}),
                                           at::tensor({1, 6, 3}, at::kLong)};
  for (int micro = 0; micro < 2; ++micro) {
    std::vector<std::int64_t> sizes = indices[micro].sizes().vec();
    sizes.push_back(kWidth);
    const at::Tensor grad = testing::fixed(sizes, 3, micro) * (micro == 0 ? 1.0 : 1e4);
    rows.add(indices[micro], grad);
    ops::embedding_weight_grad(grad, indices[micro], whole, /*accumulate=*/micro > 0);
  }
  const at::Tensor out = at::full({kRows, kWidth}, 4.0F);
  rows.reduce({0, kRows * kWidth}, out.mutable_data_ptr<float>(), false,
              {"rows", Phase::kBackward});
  EXPECT_TRUE(at::equal(out, whole));
  // What was added is gone: nothing is added to what is there, or all is zero.
  rows.reduce({0, kRows * kWidth}, out.mutable_data_ptr<float>(), true, {"rows", Phase::kBackward});
  EXPECT_TRUE(at::equal(out, whole));
  rows.reduce({0, kRows * kWidth}, out.mutable_data_ptr<float>(), false,
              {"rows", Phase::kBackward});
  EXPECT_EQ(out.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace shardbench::train
