#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/train/config.h"
#include "common/train/registry.h"
#include "common/train/result.h"

namespace shardbench::train {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Injection, Parses) {
  const Injection injection = Injection::parse("kill@3,12,backward");
  EXPECT_EQ(injection.kind, Injection::Kind::kKill);
  EXPECT_EQ(injection.rank, 3);
  EXPECT_EQ(injection.step, 12);
  EXPECT_EQ(injection.where, "backward");
}

TEST(Injection, SlowTakesPercentAndEveryStep) {
  const Injection injection = Injection::parse("slow:12.5@1,0,optimizer");
  EXPECT_EQ(injection.kind, Injection::Kind::kSlow);
  EXPECT_EQ(injection.percent, 12.5);
  EXPECT_EQ(injection.rank, 1);
  EXPECT_EQ(injection.step, 0);
  EXPECT_EQ(injection.text, "slow:12.5@1,0,optimizer");
  EXPECT_EQ(Injection::parse("slow:5@0,3,forward").step, 3);
}

TEST(Injection, ShortNamesTheFirstStepWithoutData) {
  const Injection injection = Injection::parse("short@1,3,data");
  EXPECT_EQ(injection.kind, Injection::Kind::kShort);
  EXPECT_EQ(injection.rank, 1);
  EXPECT_EQ(injection.step, 3);
}

TEST(InitMode, NamesAreReadBack) {
  for (InitMode mode : {InitMode::kDeferred, InitMode::kBroadcast, InitMode::kBroadcastTensor}) {
    EXPECT_EQ(parse_init(to_string(mode)), mode);
  }
  EXPECT_THAT(refusal([] { parse_init("meta"); }),
              ::testing::HasSubstr("give deferred, broadcast or broadcast-tensor"));
}

TEST(Injection, RefusesOtherForms) {
  for (const char* text : {"",
                           "kill",
                           "kill@1",
                           "kill@1,2",
                           "boom@1,2,forward",
                           "kill@x,2,forward",
                           "kill@-1,2,forward",
                           "kill@1,0,forward",
                           "kill@1,2,lunch",
                           "kill,1,2,forward",
                           "slow@1,2,forward",
                           "slow:@1,2,forward",
                           "slow:x@1,2,forward",
                           "slow:5x@1,2,forward",
                           "slow:0@1,2,forward",
                           "slow:-5@1,2,forward",
                           "slow:nan@1,2,forward",
                           "slow:1e9@1,2,forward",
                           "short@1,2,forward",
                           "short@1,0,data",
                           "kill@1,2,data",
                           "slow:5@1,-1,forward",
                           "kill:5@1,2,forward"}) {
    EXPECT_THAT(refusal([&] { Injection::parse(text); }),
                ::testing::HasSubstr("give KIND@RANK,STEP,WHERE"))
        << text;
  }
}

TEST(Registry, NamesTheKnownOnes) {
  Registry registry;
  registry.add({"a", "", AccumulationOrder::kRanksFirst, sharding::FormulaKind::kFsdp, {}});
  registry.add({"b", "", AccumulationOrder::kRanksFirst, sharding::FormulaKind::kFsdp, {}});
  EXPECT_EQ(registry.find("b").name, "b");
  EXPECT_EQ(refusal([&] { registry.find("c"); }), "unknown strategy 'c': choose from a, b");
  EXPECT_THROW(
      registry.add({"a", "", AccumulationOrder::kRanksFirst, sharding::FormulaKind::kFsdp, {}}),
      InvariantError);
}

TEST(RankResult, SurvivesTheWayBetweenProcesses) {
  RankResult result;
  result.rank = 3;
  result.steps.push_back({0.1, std::numeric_limits<double>::quiet_NaN(), 5, 1, 2, 2, 3, 4, 1, 9});
  result.digests.push_back({~std::uint64_t{0}, 1, 2, 3});
  result.traffic.push_back(
      {Phase::kBackward, comm::CollectiveKind::kReduce, 2, 30, 20, {20, 0, 5}});
  result.memory.peak_unit = "h.1";
  result.unused_parameters = {"x"};
  const RankResult back = deserialize(serialize(result));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.steps[0].loss, 0.1);
  EXPECT_TRUE(std::isnan(back.steps[0].gradient_norm));
  EXPECT_EQ(back.digests[0].value, ~std::uint64_t{0});
  EXPECT_EQ(back.traffic[0].wire.staging, 5);
  EXPECT_EQ(back.traffic[0].kind, comm::CollectiveKind::kReduce);
  EXPECT_EQ(back.memory.peak_unit, "h.1");
  EXPECT_EQ(back.unused_parameters, result.unused_parameters);
}

}  // namespace
}  // namespace shardbench::train
