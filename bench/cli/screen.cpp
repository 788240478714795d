#include "bench/cli/screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/core/build_info.h"
#include "common/core/format.h"
#include "common/core/machine_info.h"
#include "common/models/config.h"

namespace shardbench::cli {

void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

namespace {

bool sharded(sharding::FormulaKind kind) {
  return kind == sharding::FormulaKind::kZero3 || kind == sharding::FormulaKind::kFsdp;
}

void warn(const std::string& text) { say(fmt::format("warning: {}\n", text)); }

std::string quoted(const std::string& argument) {
  const bool plain =
      !argument.empty() && std::all_of(argument.begin(), argument.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string("-_=.,:/@+%").find(static_cast<char>(c)) != std::string::npos;
      });
  if (plain) return argument;
  std::string text = "'";
  for (char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

ProgressLine::ProgressLine(bool on) : on_(on && ::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::begin(const std::string& name, int index, int all) {
  what_ = fmt::format("[{}/{}] {}", index, all, name);
  show(what_);
}

void ProgressLine::step(int done, int all) {
  show(fmt::format("{}: step {}/{}", what_, done, all));
}

void ProgressLine::clear() {
  if (on_) say(fmt::format("\r\033[K"));
}

void ProgressLine::show(const std::string& text) {
  if (!on_) return;
  say(fmt::format("\r\033[K{}", text));
  std::fflush(stderr);
}

void print_context(const Flags& flags, const bench::Request& request, const Program& program) {
  if (flags.quiet) return;
  const MachineInfo machine = machine_info();
  const BuildInfo build = build_info();
  say(fmt::format("machine: {}, {} cores, {}, load {:.1f}\n", machine.cpu_model, machine.num_cpus,
                  format_bytes(machine.memory_bytes), machine.load_avg[0]));
  say(fmt::format("program: shardbench {} ({:.12}), {}, LibTorch {}\n", build.version,
                  build.git_sha, build.build_type, program.torch_version));
  say(fmt::format("data: {}; {} + {} steps (the first {} are warm-up and not measured)\n",
                  request.base.data, request.base.warmup, request.base.steps, request.base.warmup));
}

void print_warnings(const Flags& flags, const bench::Request& request, const Program& program) {
  if (flags.quiet) return;
  const int cores = machine_info().num_cpus;
  const int most = *std::max_element(request.worlds.begin(), request.worlds.end());
  if (cores > 0 && most * request.base.threads > cores) {
    warn(
        fmt::format("{} ranks x {} threads on {} cores: ranks take turns, so times mean little "
                    "(memory and bytes hold)",
                    most, request.base.threads, cores));
  }
  if (request.base.threads > 1) {
    warn(
        "with more than one thread per rank LibTorch's sums do not always have the same bits: a "
        "row can be WRONG for that reason alone");
  }
  const bool any_sharded = std::any_of(
      request.strategies.begin(), request.strategies.end(),
      [&](const std::string& name) { return sharded(program.registry.find(name).formula); });
  if (most > 1 && any_sharded) {
    const std::string unit =
        bench::oversized_unit(request.base, models::shape_of(request.base.model));
    if (!unit.empty()) {
      warn(unit +
           ": it is whole while in use, so sharding saves little of the peak; try smaller "
           "--units (block or tensor)");
    }
  }
}

void print_list(const Program& program) {
  fmt::print("Models (--model)\n");
  for (const std::string& name : models::preset_names()) {
    const models::ModelConfig model = models::preset(name);
    fmt::print("  {:<12} {:>13} parameters: {} layers, width {}, vocabulary {}, context {}\n", name,
               format_count(models::shape_of(model).parameter_count()), model.layers, model.hidden,
               model.vocab, model.context);
  }
  fmt::print("Strategies (--strategy)\n");
  for (const train::StrategyEntry& entry : program.registry.entries()) {
    fmt::print("  {:<12} {}\n", entry.name, entry.summary);
  }
  fmt::print(
      "Units (--units)\n"
      "  block        one transformer block each, the rest is the root unit\n"
      "  tensor       every parameter by itself\n"
      "  whole        all in one\n"
      "  size:N       modules of at least N elements (10k, 2M)\n"
      "  class:NAME   modules of this class, such as class:TransformerBlock\n"
      "Tables of compare (--table)\n"
      "  brief full memory traffic time\n");
}

void validate_all(const bench::Request& request, const Program& program, bool will_run) {
  for (int world_size : request.worlds) {
    for (const std::string& strategy : request.strategies) {
      const train::RunConfig config = bench::config_for(request, strategy, world_size);
      program.validate(config);
      if (will_run && program.require_memory) program.require_memory(config);
    }
  }
}

bench::DocumentContext document_context(const Flags& flags, const Program& program) {
  return {program.args, flags.context, program.executable, program.torch_version};
}

std::string command_without(const Program& program, const std::vector<std::string>& without) {
  std::string command = "./shardbench";
  for (std::size_t i = 1; i < program.args.size(); ++i) {
    const std::string& argument = program.args[i];
    if (argument == "--quiet") continue;
    const std::size_t equal = argument.find('=');
    const std::string flag = argument.substr(0, equal);
    if (std::find(without.begin(), without.end(), flag) != without.end()) {
      if (equal == std::string::npos) ++i;  // its value stands in the next argument
      continue;
    }
    command += ' ' + quoted(argument);
  }
  return command;
}

std::string text_of(const nlohmann::ordered_json& document) {
  return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool write_results(const bench::OutputFile& file, const std::string& text) {
  try {
    file.write(text);
    return true;
  } catch (const std::exception& error) {
    say(fmt::format("shardbench: {}\n", error.what()));
    return false;
  }
}

}  // namespace shardbench::cli
