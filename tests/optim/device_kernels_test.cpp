// The optimizer in ATen's operations against the host's kernels, on memory of the CPU.
#include "common/optim/device_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "common/modules/parameter.h"
#include "common/ops/on_host.h"
#include "common/optim/norm.h"
#include "common/optim/optimizer.h"
#include "tests/support/numeric.h"

namespace shardbench::optim {
namespace {

/// Two parameters in one flat memory, with a gap between them.
struct Job {
  explicit Job(std::int64_t rows)
      : matrix("w", {rows, 33}, Init::constant(0)),
        vector("b", {7}, Init::constant(0)),
        value(at::randn({rows * 33 + 32})),
        gradient(at::randn({rows * 33 + 32})) {
    matrix.set_index(0);
    vector.set_index(1);
    const std::int64_t n = rows * 33, second = n + 16;
    owned.pieces.push_back({&matrix, 0, n, value.data_ptr<float>(), gradient.data_ptr<float>(), 0});
    owned.pieces.push_back({&vector, 0, 7, value.data_ptr<float>() + second,
                            gradient.data_ptr<float>() + second, second});
    owned.state_extent = n + 32;
  }
  double norm(const std::vector<char>& used) const {
    ExactSum sum;
    add_squares(owned, used, sum);
    return sum.value();
  }
  Parameter matrix, vector;
  at::Tensor value, gradient;
  Owned owned;
};

/// Values and moments after some steps, the second of which leaves a parameter out.
std::vector<at::Tensor> trained(train::OptimizerKind kind, bool portable) {
  at::manual_seed(6);
  Job job(40);
  std::optional<ops::PortableOnly> scope;
  if (portable) scope.emplace();
  train::OptimizerConfig config;
  config.kind = kind;
  config.lr = 0.02;
  const auto optimizer = make_optimizer(config, job.owned);
  for (int step = 0; step < 5; ++step) {
    job.gradient.normal_();
    optimizer->step(job.owned, {1, static_cast<char>(step != 1)}, 0.37f);
  }
  const auto copy = [&](const float* data) {
    return at::from_blob(const_cast<float*>(data), {job.owned.state_extent}).clone();
  };
  std::vector<at::Tensor> all = {job.value.clone(),
                                 copy(optimizer->first_moment(job.owned.pieces[0]))};
  if (const float* v = optimizer->second_moment(job.owned.pieces[0])) all.push_back(copy(v));
  return all;
}

/// LibTorch's square root on the CPU is MKL's, which may miss the nearest number by one place.
constexpr double kRoot = 1e-7;

TEST(DeviceOptimizer, HasTheBitsOfTheHostsButForTheRoot) {
  for (const train::OptimizerKind kind :
       {train::OptimizerKind::kAdamW, train::OptimizerKind::kSgd}) {
    const auto host = trained(kind, false), device = trained(kind, true);
    ASSERT_EQ(host.size(), device.size());
    const bool root = kind == train::OptimizerKind::kAdamW;
    EXPECT_TRUE(testing::close_to(device[0], host[0], root ? kRoot : 0));
    for (std::size_t i = 1; i < host.size(); ++i) EXPECT_TRUE(at::equal(host[i], device[i])) << i;
  }
}

/// More than one block of temporaries.
TEST(DeviceOptimizer, BlocksMakeNoDifference) {
  const std::int64_t n = (std::int64_t{1} << 22) + 5;
  const at::Tensor gradient = at::randn({n}), value = at::randn({n});
  const at::Tensor m = at::randn({n}), v = at::rand({n});
  const AdamWStep step{0.1f, 0.1f, 0.9f, 0.95f, 1e-8f, 0.2f, 1.5f, 0.5f};
  const at::Tensor x = value.clone(), x_m = m.clone(), x_v = v.clone();
  adamw(step, n, gradient.const_data_ptr<float>(), x.data_ptr<float>(), x_m.data_ptr<float>(),
        x_v.data_ptr<float>());
  on_device::adamw(step, gradient, value, m, v);
  EXPECT_TRUE(testing::close_to(value, x, kRoot));
  EXPECT_TRUE(at::equal(x_m, m));
  EXPECT_TRUE(at::equal(x_v, v));
}

TEST(DeviceNorm, IsTheHostsButForTheLastPlaces) {
  Job job(40);
  const double host = job.norm({1, 1});
  const ops::PortableOnly scope;
  const double device = job.norm({1, 1});
  EXPECT_NEAR(device / host, 1, 33 * 1.2e-16);  // rows of 33 are added up in another order
  EXPECT_LT(job.norm({1, 0}), device);
  EXPECT_EQ(job.norm({0, 0}), 0);
}

/// A row's sum may not depend on its neighbours: or ways of sharding would differ.
TEST(DeviceNorm, DoesNotDependOnWhereRowsAreCut) {
  for (const std::int64_t width : {1, 2, 3, 33, 1000}) {
    const at::Tensor rows = at::randn({9, width});
    const at::Tensor whole = on_device::sums_of_squares(rows);
    for (std::int64_t row = 0; row < 9; ++row) {
      EXPECT_TRUE(
          at::equal(on_device::sums_of_squares(rows.narrow(0, row, 1)), whole.narrow(0, row, 1)));
    }
    EXPECT_TRUE(at::allclose(whole, rows.to(at::kDouble).square().sum(1), 1e-14));
  }
}

TEST(DeviceNorm, SeesWhatIsNotFinite) {
  Job job(3);
  const auto finite = [&](const std::vector<char>& used) { return all_finite(job.owned, used); };
  const ops::PortableOnly scope;
  EXPECT_TRUE(finite({1, 1}));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    job.owned.pieces[1].gradient[6] = bad;
    EXPECT_FALSE(finite({1, 1}));
    EXPECT_TRUE(finite({1, 0}));
    EXPECT_TRUE(std::isnan(job.norm({1, 1})));
  }
}

}  // namespace
}  // namespace shardbench::optim
