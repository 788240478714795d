#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "common/core/build_info.h"
#include "common/core/machine_info.h"

namespace shardbench {
namespace {

using testing::MatchesRegex;

TEST(BuildInfo, SaysWhatThisIs) {
  const BuildInfo info = build_info();
  EXPECT_THAT(std::string(info.version), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(std::string(info.git_sha), MatchesRegex("(unknown|[0-9a-f]{40}(-dirty)?)"));
  EXPECT_FALSE(info.build_type.empty());
  EXPECT_THAT(std::string(info.compiler), MatchesRegex("[A-Za-z]+ [0-9.]+"));
}

TEST(MachineInfo, SaysWhereThisRuns) {
  const MachineInfo info = machine_info();
  EXPECT_GE(info.num_cpus, 1);
  EXPECT_LE(info.num_cpus, sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GE(info.memory_bytes, std::int64_t{64} << 20);
  EXPECT_GE(info.load_avg[0], 0);
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  EXPECT_EQ(info.host_name, host);
  EXPECT_EQ(info.kernel.substr(0, 6), "Linux ");
  EXPECT_THAT(info.date,
              MatchesRegex("20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:"
                           "[0-9]{2}"));
  for (const CacheInfo& cache : info.caches) {
    EXPECT_GE(cache.level, 1);
    EXPECT_GT(cache.size, 0);
    EXPECT_THAT(cache.type, MatchesRegex("Data|Instruction|Unified"));
  }
}

}  // namespace
}  // namespace shardbench
