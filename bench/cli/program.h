#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/compare/compare.h"
#include "bench/compare/document.h"
#include "common/train/registry.h"

namespace shardbench::cli {

/// What the commands work with; main fills it, so that commands need no LibTorch.
struct Program {
  train::Registry registry;
  bench::Engine engine;
  /// Checks a job before any rank starts; throws UserError.
  std::function<void(const train::RunConfig&)> validate;
  /// Throws UserError for a job that is too large for this machine; may be empty.
  std::function<void(const train::RunConfig&)> require_memory;
  std::string executable;  ///< full path
  std::string torch_version;
  std::vector<std::string> args;  ///< the command line, program name first
};

/// Exit codes (those of failed rows: bench::exit_code).
inline constexpr int kExitDone = 0;
inline constexpr int kExitWrong = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitLost = 3;

/// Parses the command line and runs the command. Never throws: errors become one line on stderr
/// and an exit code.
int run_program(const Program& program);

/// Path of the running program.
std::string executable_path();

}  // namespace shardbench::cli
