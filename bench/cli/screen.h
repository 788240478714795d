#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/cli/flags.h"
#include "bench/cli/program.h"
#include "bench/compare/output_file.h"

namespace shardbench::cli {

/// From now on this process prints nothing: rank 0 of the launched ones does.
void be_silent();

/// Writes to stderr. A closed or full stderr is no reason to lose results: failures are ignored.
void say(const std::string& text);

/// Why a row failed; nothing when that has been said already.
void say_failure(const Program& program, const std::string& text);

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
/// What the measurement of operations came to: to stderr, unless quiet.
void print_tuning(const Flags& flags, const ops::TuningTable& table);
/// Ranks x threads beyond the cores; one unit that holds most of the weights. To stderr.
void print_warnings(const Flags& flags, const bench::Request& request, const Program& program);
/// Models, strategies, unit policies and tables, to stdout in one of the formats of `compare`.
void print_list(const Program& program, const std::string& format);

/// Puts the backend that will be used in place of the one asked for. Throws UserError when it
/// cannot be had here, or a link is to be emulated over a real one.
void resolve_backend(bench::Request& request, const Program& program);

/// Checks every job of the request; whether it fits this machine only if it `will_run`.
void validate_all(const bench::Request& request, const Program& program, bool will_run);

bench::DocumentContext document_context(const Flags& flags, const Program& program);

/// How to call this again: the command line without the flags named in `without` (and their
/// values), --quiet and --explain, quoted for a shell.
std::string command_without(const Program& program, std::vector<std::string> without);

/// The document as it is written: text that is not UTF-8 is replaced, never a reason to fail.
std::string text_of(const nlohmann::ordered_json& document);
/// Writes the results; a disk that has filled up meanwhile is reported, and what the program prints
/// still comes. Returns whether it worked.
bool write_results(const bench::OutputFile& file, const std::string& text);

}  // namespace shardbench::cli
