// Children that this program runs: how they end, and that nobody is left.

#include "bench/peers/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

namespace shardbench::bench {
namespace {

using ::testing::ElementsAre;
using End = ChildOutcome::End;
using namespace std::chrono_literals;

ChildRequest shell(const std::string& script) {
  ChildRequest request;
  request.command = {"sh", "-c", script};
  return request;
}

void expect_nobody_left() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, LinesAndTheLastWordOfItsErrors) {
  std::vector<std::string> lines;
  ChildRequest request = shell("echo one; printf 'two\\nthree'; echo why >&2; echo >&2; exit 4");
  request.on_line = [&](const std::string& line) {
    lines.push_back(line);
    return true;
  };
  const ChildOutcome outcome = run_child(request);
  EXPECT_EQ(outcome.end, End::kExited);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_FALSE(outcome.well());
  EXPECT_EQ(outcome.reason, "why");
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
  expect_nobody_left();
}

TEST(Child, EnvironmentAndStandardInput) {
  std::string seen;
  ChildRequest request = shell("read line || echo \"$GIVEN empty\"");
  request.environment = {{"GIVEN", "value"}};
  request.on_line = [&](const std::string& line) {
    seen = line;
    return true;
  };
  EXPECT_TRUE(run_child(request).well());
  EXPECT_EQ(seen, "value empty");
}

TEST(Child, MuchOutputOnBothSides) {
  std::size_t lines = 0;
  ChildRequest request =
      shell("i=0; while [ $i -lt 20000 ]; do echo 0123456789; echo abc >&2; i=$((i+1)); done");
  request.on_line = [&](const std::string&) {
    ++lines;
    return true;
  };
  EXPECT_TRUE(run_child(request).well());
  EXPECT_EQ(lines, 20000u);
}

TEST(Child, KilledBySomebody) {
  const ChildOutcome outcome = run_child(shell("kill -9 $$"));
  EXPECT_EQ(outcome.end, End::kKilled);
  EXPECT_EQ(outcome.code, SIGKILL);
  expect_nobody_left();
}

TEST(Child, AProgramThatIsNotThere) {
  ChildRequest request;
  request.command = {"/no/such/program"};
  const ChildOutcome outcome = run_child(request);
  EXPECT_EQ(outcome.end, End::kNotStarted);
  EXPECT_EQ(outcome.code, ENOENT);
  expect_nobody_left();
}

TEST(Child, SilenceEndsItAndNoiseIsNoSignOfLife) {
  ChildRequest request = shell("trap '' TERM INT; while :; do echo noise; sleep 0.05; done");
  request.silence = 300ms;
  request.on_line = [](const std::string& line) { return line == "step"; };
  EXPECT_EQ(run_child(request).end, End::kSilent);
  expect_nobody_left();
}

TEST(Child, SignsOfLifeKeepIt) {
  ChildRequest request =
      shell("i=0; while [ $i -lt 8 ]; do echo step; sleep 0.8; i=$((i+1)); done");
  request.silence = 5s;
  request.on_line = [](const std::string& line) { return line == "step"; };
  EXPECT_TRUE(run_child(request).well());
}

TEST(Child, WhatItLeavesBehindIsCleared) {
  // One stays in its group, one leaves it, one is an orphan's child.
  const ChildOutcome outcome =
      run_child(shell("sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & wait') &"));
  EXPECT_TRUE(outcome.well());
  expect_nobody_left();
}

TEST(Child, ASignalForThisProcessEndsItToo) {
  const ChildOutcome outcome = run_child(shell("kill -TERM $PPID; sleep 1000"));
  EXPECT_EQ(outcome.end, End::kInterrupted);
  EXPECT_EQ(outcome.signal, SIGTERM);
  expect_nobody_left();
}

}  // namespace
}  // namespace shardbench::bench
