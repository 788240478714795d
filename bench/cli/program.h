#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/compare/compare.h"
#include "bench/compare/document.h"
#include "common/comm/launch/ranks.h"
#include "common/train/registry.h"

namespace shardbench::cli {

/// What the commands work with; main fills it, so that commands need no LibTorch.
struct Program {
  train::Registry registry;
  bench::Engine engine;
  std::shared_ptr<comm::Ranks> ranks;  ///< where the engine's ranks come from
  /// Checks a job before any rank starts; throws UserError.
  std::function<void(const train::RunConfig&)> validate;
  /// Throws UserError for a job that is too large for this machine; may be empty.
  std::function<void(const train::RunConfig&)> require_memory;
  std::string executable;  ///< full path
  std::string torch_version;
  std::vector<std::string> args;  ///< the command line, program name first
  /// Called once the command line has been understood, before anything runs; may be empty. Throws
  /// UserError when the ranks were not started alike.
  std::function<void()> agree;
  /// Whether it has been said already why the job ended; may be empty.
  std::function<bool()> told;
  /// Told why this process refuses the request; may be empty.
  std::function<void(const std::string& message)> refused;

  /// Ranks of a run that does not say how many: all that a launcher started, else 2.
  int default_world_size() const;
  /// Whether this process writes files and to the screen: one of those a launcher started does.
  bool speaks() const { return ranks == nullptr || ranks->speaks(); }
};

/// Exit codes (those of failed rows: bench::exit_code).
inline constexpr int kExitDone = 0;
inline constexpr int kExitWrong = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitLost = 3;

/// Parses the command line and runs the command. Never throws: errors become one line on stderr
/// and an exit code.
int run_program(const Program& program);

/// What --version prints.
std::string version_line(const Program& program);

/// Path of the running program.
std::string executable_path();

}  // namespace shardbench::cli
