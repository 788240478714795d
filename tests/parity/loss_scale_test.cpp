// An overflow on one rank makes all ranks skip the step and halve the scale; what was skipped
// leaves no trace.

#include "common/train/loss_scale.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/models/build.h"
#include "common/train/digest.h"
#include "common/train/session.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

using ::testing::HasSubstr;

/// Its gradient is its input over the number of elements; three rows, so that of four ranks one has
/// no shard.
class Rows : public Module {
 public:
  Rows() { value_ = &add_parameter("value", {3, 4}, Init::normal(1)); }
  std::string_view class_name() const override { return "Rows"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (value_->tracked() * inputs[0]).to(at::kFloat).mean();
  }

 private:
  Parameter* value_;
};

/// Input of one rank: only rank 1's overflows, and only in row 2, which is rank 2's.
at::Tensor input_of(int rank, bool overflow) {
  const at::Tensor x = at::ones({3, 4}, at::kHalf);
  if (overflow && rank == 1) x.select(0, 2).fill_(1024);
  return x;
}

std::uint64_t digest_of(train::Session& session) {
  std::uint64_t sum = 0;
  for (const OwnedPiece& piece : session.strategy().owned().pieces) {
    sum += train::digest(piece.value, piece.begin, piece.count);
    sum += 3 * train::digest(session.optimizer().first_moment(piece), piece.begin, piece.count);
    sum += 5 * train::digest(session.optimizer().second_moment(piece), piece.begin, piece.count);
  }
  return sum;
}

/// Three steps; with `overflow` another one before the second, which must be skipped.
std::string train(const std::string& strategy, comm::Communicator& ranks, bool overflow,
                  double max_norm) {
  at::set_num_threads(1);
  Model model("rows", std::make_unique<Rows>());
  train::SessionOptions options;
  options.strategy.compute_dtype = DType::kFloat16;
  options.loss_scale = train::LossScale::parse("dynamic");
  options.max_norm = max_norm;
  train::Session session(model, all_strategies().find(strategy).make(), ranks, options);
  double scale = 65536;
  const auto step = [&](bool inf) {
    const train::StepResult result =
        session.step([&](int) { return model(input_of(ranks.rank(), inf)); });
    SHARDBENCH_CHECK_EQ(result.loss_scale, scale);
    SHARDBENCH_CHECK_EQ(result.skipped, inf);
    if (inf) scale /= 2;
    if (max_norm > 0 && !inf) {
      SHARDBENCH_CHECK(std::abs(result.gradient_norm - std::sqrt(1.0 / 12)) < 1e-3, "norm {}",
                       result.gradient_norm);
    }
  };
  step(false);
  if (overflow) {
    const std::uint64_t before = digest_of(session);
    step(true);
    SHARDBENCH_CHECK_EQ(digest_of(session), before);
  }
  step(false);
  step(false);
  return fmt::format("{:x}", digest_of(session));
}

TEST(LossScale, OverflowOnOneRankSkipsTheStepOnAll) {
  for (const std::string& strategy : strategy_names()) {
    for (double max_norm : {0.0, 0.01}) {
      const auto run = [&](bool overflow) {
        const auto job = comm::Job::create({.world_size = 4, .timeout = std::chrono::seconds(60)});
        const auto outcome = comm::run_forked(job, [&](int rank) {
          return train(strategy, *comm::make_shm(job, rank), overflow, max_norm);
        });
        EXPECT_TRUE(outcome.ok) << strategy << ": "
                                << (outcome.failure ? outcome.failure->message : "no result");
        return outcome.results;
      };
      EXPECT_EQ(run(true), run(false)) << strategy;  // the step counter did not move either
    }
  }
}

TEST(LossScale, HalvesAndDoublesAndStaysAboveOne) {
  train::LossScaler scaler(train::LossScale::parse("dynamic"));
  EXPECT_TRUE(scaler.active());
  EXPECT_EQ(scaler.value(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.note_step(false);
  EXPECT_EQ(scaler.value(), 65536);
  scaler.note_step(false);
  EXPECT_EQ(scaler.value(), 131072);
  for (int i = 0; i < 1999; ++i) scaler.note_step(false);
  scaler.note_step(true);  // good steps are counted anew
  EXPECT_EQ(scaler.value(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.note_step(false);
  EXPECT_EQ(scaler.value(), 65536);
  for (int i = 0; i < 30; ++i) scaler.note_step(true);
  EXPECT_EQ(scaler.value(), 1);
}

TEST(LossScale, AFixedOneStaysAndNoneIsOne) {
  train::LossScaler fixed_scale(train::LossScale::parse("1024"));
  fixed_scale.note_step(true);
  EXPECT_EQ(fixed_scale.value(), 1024);
  EXPECT_TRUE(fixed_scale.active());
  train::LossScaler none(std::nullopt);
  none.note_step(true);
  EXPECT_EQ(none.value(), 1);
  EXPECT_FALSE(none.active());
}

TEST(LossScale, SessionsRefuseFp16WithoutOneAndOneWithoutFp16) {
  const auto model = models::build(models::preset("mlp"));
  const auto ranks = comm::make_shm(comm::Job::create({.world_size = 1}), 0);
  const auto message = [&](DType dtype, const char* scale) -> std::string {
    train::SessionOptions options;
    options.strategy.compute_dtype = dtype;
    if (scale != nullptr) options.loss_scale = train::LossScale::parse(scale);
    try {
      train::Session session(*model, all_strategies().find("ddp").make(), *ranks, options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(DType::kFloat16, nullptr), HasSubstr("--loss-scale dynamic"));
  EXPECT_THAT(message(DType::kBFloat16, "8"), HasSubstr("leave it out"));
  EXPECT_THAT(message(DType::kInt64, nullptr), HasSubstr("fp32, bf16 or fp16"));
  EXPECT_EQ(message(DType::kFloat16, "8"), "");
  EXPECT_EQ(message(DType::kBFloat16, nullptr), "");
  EXPECT_EQ(message(DType::kFloat32, nullptr), "");  // and fp32 again after fp16
}

}  // namespace
}  // namespace shardbench::testing
