#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace shardbench::bench {

/// A program that this one runs and watches.
struct ChildRequest {
  std::vector<std::string> command;  ///< the program, found on PATH, and its arguments
  std::map<std::string, std::string> environment;  ///< over this process's own
  /// How long it may say nothing that `on_line` takes before it is ended.
  std::chrono::milliseconds silence{300'000};
  /// Called with every line of its standard output; returns whether that is a sign of life.
  std::function<bool(const std::string& line)> on_line;
};

struct ChildOutcome {
  enum class End { kExited, kKilled, kSilent, kNotStarted, kInterrupted } end = End::kExited;
  int code = 0;        ///< kExited: its exit status; kKilled: the signal; kNotStarted: errno
  int signal = 0;      ///< SIGINT or SIGTERM that this process got meanwhile, or 0
  std::string reason;  ///< the last line of its standard error that is not empty

  bool well() const { return end == End::kExited && code == 0; }
};

/// Runs it in a process group of its own, with nothing on standard input, and waits. However it
/// ends, no process that it started is left: those of its group and those that became orphans are
/// killed and reaped. It dies with this process. Call it while this process has no other children.
ChildOutcome run_child(const ChildRequest& request);

}  // namespace shardbench::bench
