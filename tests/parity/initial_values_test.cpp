// Every rank starts from rank 0's weights and buffers, whatever its own seed, under every strategy
// and each way to start.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/comm/job.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/modules/init.h"
#include "common/modules/layers/linear.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

/// Odd shapes and a buffer that starts differently on every rank.
class Net : public Module {
 public:
  Net() {
    a_ = &add_child<Linear>("a", 7, 19);
    b_ = &add_child<Linear>("b", 19, 5);
    mean = &add_buffer("mean", {3}, 0);
  }
  std::string_view class_name() const override { return "Net"; }
  ModuleBuffer* mean;

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (*b_)((*a_)(inputs[0])).square().mean();
  }

 private:
  Linear* a_;
  Linear* b_;
};

constexpr std::uint64_t kSeed = 11;
constexpr std::int64_t kParameters = 19 * 7 + 19 + 5 * 19 + 5;

/// Throws unless the elements that this rank keeps are those that rank 0's seed gives.
void expect_seed_0(const train::Strategy& strategy) {
  for (const OwnedPiece& piece : strategy.owned().pieces) {
    std::vector<float> expected(static_cast<std::size_t>(piece.count));
    initialize(*piece.parameter, kSeed, piece.begin, piece.count, expected.data());
    SHARDBENCH_CHECK(std::memcmp(expected.data(), piece.value, expected.size() * 4) == 0, "{}",
                     piece.parameter->name());
  }
}

/// Attaches the strategy on every rank; returns the peak bytes of communication buffers meanwhile.
std::vector<std::int64_t> attach(const std::string& name, train::InitMode mode, int world_size) {
  comm::Job::Options options;
  options.world_size = world_size;
  options.timeout = std::chrono::seconds(60);
  options.guard_peers = true;
  const auto job = comm::Job::create(options);
  const comm::JobOutcome outcome = comm::run_forked(job, [&](int rank) {
    at::set_num_threads(1);
    memory::install_allocator();
    const auto comm = world_size > 1 ? comm::make_shm(job, rank) : comm::make_local();
    auto root = std::make_unique<Net>();
    ModuleBuffer& buffer = *root->mean;
    buffer.tensor.fill_(static_cast<float>(rank) + 0.5f);
    Model model("net", std::move(root));
    const auto strategy = all_strategies().find(name).make();
    train::StrategyOptions strategy_options;
    strategy_options.init = mode;
    strategy->attach({&model, comm.get(), strategy_options, kSeed, {}});
    expect_seed_0(*strategy);
    for (const Parameter* p : model.parameters()) {
      if (!p->bound()) continue;  // whole weights: owned or not
      std::vector<float> expected(static_cast<std::size_t>(p->numel()));
      initialize(*p, kSeed, 0, p->numel(), expected.data());
      SHARDBENCH_CHECK(
          std::memcmp(expected.data(), p->tensor().const_data_ptr(), expected.size() * 4) == 0,
          "{}", p->name());
    }
    const float mean = buffer.tensor[1].item<float>();
    const bool own = mode == train::InitMode::kDeferred;
    SHARDBENCH_CHECK_EQ(mean, own ? static_cast<float>(rank) + 0.5f : 0.5f);
    const auto category = static_cast<std::size_t>(memory::Category::kCommBuffer);
    const std::int64_t peak = memory::tracker().peak_by_category()[category];
    model.detach();
    return std::to_string(peak);
  });
  EXPECT_TRUE(outcome.ok) << name << " W=" << world_size << ": "
                          << (outcome.failure ? outcome.failure->message : "");
  std::vector<std::int64_t> peaks;
  if (!outcome.ok) return peaks;
  for (const std::string& text : outcome.results) peaks.push_back(std::stoll(text));
  return peaks;
}

TEST(InitialValues, EqualRankZerosOnEveryRank) {
  for (const std::string& strategy : strategy_names()) {
    for (int world_size : {1, 2, 3, 4, 8}) {
      for (auto mode : {train::InitMode::kDeferred, train::InitMode::kBroadcast,
                        train::InitMode::kBroadcastTensor}) {
        SCOPED_TRACE(strategy + " W=" + std::to_string(world_size) + " " + to_string(mode));
        attach(strategy, mode, world_size);
      }
    }
  }
}

TEST(InitialValues, TensorByTensorNeedsTheLargestTensorOnly) {
  for (const std::string& strategy : strategy_names()) {
    const auto peaks = [&](train::InitMode mode) { return attach(strategy, mode, 3); };
    for (std::int64_t peak : peaks(train::InitMode::kDeferred)) EXPECT_EQ(peak, 0) << strategy;
    const auto rounded = [](std::int64_t elements) { return (elements * 4 + 63) / 64 * 64; };
    for (std::int64_t peak : peaks(train::InitMode::kBroadcast)) {
      EXPECT_GE(peak, kParameters * 4) << strategy;
    }
    for (std::int64_t peak : peaks(train::InitMode::kBroadcastTensor)) {
      EXPECT_GE(peak, 19 * 7 * 4) << strategy;
      EXPECT_LE(peak, rounded(19 * 7) + 64) << strategy;
    }
  }
}

}  // namespace
}  // namespace shardbench::testing
