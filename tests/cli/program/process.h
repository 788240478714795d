#pragma once

#include <string>
#include <vector>

namespace shardbench::cli {

/// How a run of the built program ended.
struct Outcome {
  int exit_code = -1;  ///< -1 when a signal ended the program itself
  std::string out;
  std::string err;
  double seconds = 0;
};

/// What may be done to a running program.
struct RunOptions {
  std::vector<std::string> launcher;     ///< what starts the program, with its flags; or nothing
  std::vector<std::string> environment;  ///< "KEY=VALUE", over the test's own
  std::string out;                       ///< standard output goes there; empty: it is kept
  int signal = 0;                        ///< sent to the program when `signal_after_s` have passed
  double signal_after_s = 0;
};

/// Runs build/bin/shardbench with these arguments in an empty folder of its own for caches, and
/// waits. Standard input is /dev/null, standard error a file (so: no terminal).
Outcome run_shardbench(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// Processes below this one that are not zombies: what a run must not leave behind.
int children_left();

/// Flags that make any run small: a model of some thousand parameters, short sequences, synthetic
/// data, two steps. Append to the arguments.
std::vector<std::string> small_job(std::vector<std::string> arguments);

}  // namespace shardbench::cli
