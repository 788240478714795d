#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "bench/cli/program.h"

namespace shardbench::cli {

/// Each adds its subcommand with its flags and leaves in `chosen` what runs it. The returned
/// function yields the exit code and throws UserError for requests that cannot be met.
using Command = std::function<int()>;

void add_compare(CLI::App& app, const Program& program, Command& chosen);
void add_run(CLI::App& app, const Program& program, Command& chosen);
void add_diff(CLI::App& app, const Program& program, Command& chosen);
void add_layout(CLI::App& app, const Program& program, Command& chosen);
void add_collectives(CLI::App& app, const Program& program, Command& chosen);

}  // namespace shardbench::cli
