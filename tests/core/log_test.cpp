#include "common/core/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "common/core/rank_context.h"

namespace shardbench {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) {
      lines_.emplace_back(level, std::string(line));
    });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::kInfo);
  }
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(LogTest, DropsWhatIsBelowTheLevel) {
  log_debug("hidden");
  log_info("shown {}", 1);
  set_log_level(LogLevel::kWarning);
  log_info("hidden");
  log_warning("careful");
  set_log_level(LogLevel::kOff);
  log_error("hidden");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].second, "shown 1");
  EXPECT_EQ(lines_[1].first, LogLevel::kWarning);
  EXPECT_EQ(lines_[1].second, "warning: careful");
  set_log_level(LogLevel::kDebug);
  log_debug("shown");
  EXPECT_EQ(lines_.back().second, "shown");
}

TEST_F(LogTest, StartsWithTheRankOfTheThread) {
  std::thread([] {
    rank_context() = {2, 3, "shm"};
    log_error("lost {}", "a peer");
  }).join();
  log_error("no rank here");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].second, "[rank 2/3 shm] error: lost a peer");
  EXPECT_EQ(lines_[1].second, "error: no rank here");
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) log_info("{}{}{}{}", t, t, t, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(lines_.size(), 800u);
  for (const auto& [level, line] : lines_) EXPECT_EQ(line, std::string(4, line[0]));
}

TEST(Log, WritesToStderrByDefault) {
  testing::internal::CaptureStderr();
  log_warning("to the terminal");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: to the terminal\n");
}

}  // namespace
}  // namespace shardbench
