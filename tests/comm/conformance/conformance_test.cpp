// The suite over the backends that need no launcher.
#include <gtest/gtest.h>

#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "tests/comm/conformance/suite.h"
#include "tests/support/ranks.h"

namespace shardbench::comm::conformance {
namespace {

using testing::Rank;
using testing::RankMode;

class Conformance : public ::testing::TestWithParam<std::tuple<RankMode, int>> {};

TEST_P(Conformance, Shm) {
  const auto [mode, world_size] = GetParam();
  testing::RankOptions options;
  options.mode = mode;
  testing::run_ranks(
      world_size,
      [](Rank& rank) {
        const auto wire = wire_matrix(rank.job);
        for (const std::string& failure : run_suite(rank.comm, wire.get())) {
          ADD_FAILURE() << failure;
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         ::testing::Combine(::testing::Values(RankMode::kThreads, RankMode::kForked,
                                                              RankMode::kCarried),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& parameter) {
                           return ::testing::PrintToString(std::get<0>(parameter.param)) + "W" +
                                  std::to_string(std::get<1>(parameter.param));
                         });

TEST(ConformanceLocal, OneRank) {
  const auto comm = make_local();
  const auto wire = local_wire_matrix();
  for (const std::string& failure : run_suite(*comm, wire.get())) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace shardbench::comm::conformance
