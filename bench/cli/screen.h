#pragma once

#include <string>

#include "bench/cli/flags.h"
#include "bench/cli/program.h"

namespace shardbench::cli {

/// One line about the present run on stderr, rewritten in place; nothing unless stderr is a
/// terminal and `on`.
class ProgressLine {
 public:
  explicit ProgressLine(bool on);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void begin(const std::string& name, int index, int all);
  void step(int done, int all);
  void clear();

 private:
  void show(const std::string& text);
  bool on_;
  std::string what_;
};

/// Machine, versions, data: to stderr before a run, unless quiet.
void print_context(const Flags& flags, const bench::Request& request, const Program& program);
/// Ranks x threads beyond the cores; one unit that holds most of the weights. To stderr.
void print_warnings(const Flags& flags, const bench::Request& request, const Program& program);
/// Models, strategies, unit policies and tables, to stdout.
void print_list(const Program& program);

/// Checks every job of the request with program.validate.
void validate_all(const bench::Request& request, const Program& program);

bench::DocumentContext document_context(const Flags& flags, const Program& program);

/// How to call this again: the command line without the flags named in `without` (and their
/// values) and --quiet, quoted for a shell.
std::string command_without(const Program& program, const std::vector<std::string>& without);

}  // namespace shardbench::cli
