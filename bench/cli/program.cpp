#include "bench/cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "bench/cli/commands.h"
#include "bench/cli/screen.h"
#include "common/core/build_info.h"
#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::cli {
namespace {

void print_error(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  say(fmt::format("shardbench: {}\n", message));
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// The subcommand that was being parsed, or null.
const CLI::App* parsed_command(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? nullptr : parsed.front();
}

/// One line for an argument that nobody took.
std::string unexpected(const CLI::App& app, const CLI::App* command, const std::string& argument) {
  if (command == nullptr) {
    const std::vector<std::string> names = command_names(app);
    return fmt::format("unknown command '{}': choose from {}{}", argument, join(names),
                       did_you_mean(argument, names));
  }
  if (argument.rfind('-', 0) != 0) {
    return fmt::format("unexpected argument '{}' of {}: flags start with --", argument,
                       command->get_name());
  }
  const std::string flag = argument.substr(0, argument.find('='));
  return fmt::format("unknown flag '{}' of {}{}; shardbench {} --help lists all", flag,
                     command->get_name(), did_you_mean(flag, flag_names(*command)),
                     command->get_name());
}

/// CLI11's messages in our form: one line that says what and where.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = parsed_command(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (!rest.empty()) return unexpected(app, command, rest.front());
  const std::string help =
      fmt::format("shardbench {}--help", command == nullptr ? "" : command->get_name() + " ");
  if (command == nullptr) {
    return fmt::format("no command given: choose from {} (see {})", join(command_names(app)), help);
  }
  const std::string text = error.what();
  const std::string flag = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (text.find("override") != std::string::npos) {
      return fmt::format("--{} takes no value", flag.substr(0, flag.find(' ')));
    }
    const bool twice = text.find("received") != std::string::npos;
    return twice ? fmt::format("{} is given more than once: leave one", flag)
                 : fmt::format("{} needs a value (see {})", flag, help);
  }
  return fmt::format("{} (see {})", text, help);
}

int parse_and_run(CLI::App& app, const Program& program, const Command& chosen) {
  std::vector<std::string> reversed(program.args.rbegin(), program.args.rend() - 1);
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitDone;
  } catch (const CLI::CallForVersion&) {
    fmt::print("{}\n", version_line(program));
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw UserError(explain(app, error));
  }
  if (program.agree) program.agree();
  return chosen();
}

int run_guarded(CLI::App& app, const Program& program, const Command& chosen) {
  try {
    return parse_and_run(app, program, chosen);
  } catch (const UserError& error) {
    print_error(error.what());
    if (program.refused) program.refused(error.what());
    return kExitUsage;
  } catch (const JobAborted& error) {
    print_error(error.what());
    return kExitLost;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kExitWrong;
  }
}

/// What stands in the buffer of stdout must get out before success can be claimed: the disk may be
/// full, or the descriptor closed.
int with_written_output(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_error(fmt::format("standard output cannot be written ({})",
                          errno == 0 ? "an earlier write failed" : std::strerror(errno)));
  return code == kExitDone ? kExitWrong : code;
}

}  // namespace

int run_program(const Program& program) {
  CLI::App app(
      "Trains the same model under DDP, ZeRO-1 to 3 and FSDP and puts memory, time and "
      "communication side by side.",
      "shardbench");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_line(program));
  app.footer(
      "Exit codes: 0 all right, 1 a row is WRONG or a rank threw, 2 the request cannot be "
      "met,\n3 timeout or a lost rank, 130 / 143 stopped by a signal.");
  Command chosen;
  add_compare(app, program, chosen);
  add_run(app, program, chosen);
  add_diff(app, program, chosen);
  add_layout(app, program, chosen);
  add_collectives(app, program, chosen);
  return with_written_output(run_guarded(app, program, chosen));
}

std::string version_line(const Program& program) {
  const BuildInfo build = build_info();
  return fmt::format("shardbench {} ({}), {}, LibTorch {}, {}", build.version, build.git_sha,
                     build.build_type, program.torch_version, build.compiler);
}

int Program::default_world_size() const {
  const int launched = ranks == nullptr ? 0 : ranks->launched_world_size();
  return launched > 0 ? launched : 2;
}

std::string executable_path() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "shardbench";
}

}  // namespace shardbench::cli
