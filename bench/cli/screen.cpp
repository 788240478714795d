#include "bench/cli/screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/compare/report.h"
#include "bench/compare/tuning.h"
#include "common/core/build_info.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/core/machine_info.h"
#include "common/models/config.h"

namespace shardbench::cli {

namespace {
bool silent = false;
}  // namespace

void be_silent() {
  silent = true;
  // What is printed on stdout is rank 0's to print.
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::fclose(stdout);
}

void say(const std::string& text) {
  if (!silent) std::fputs(text.c_str(), stderr);
}

void say_failure(const Program& program, const std::string& text) {
  if (!program.told || !program.told()) say(text);
}

namespace {

bool sharded(sharding::FormulaKind kind) {
  return kind == sharding::FormulaKind::kZero3 || kind == sharding::FormulaKind::kFsdp;
}

void warn(const std::string& text) { say(fmt::format("warning: {}\n", text)); }

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

void print_tuning(const Flags& flags, const ops::TuningTable& table) {
  const std::string line = bench::tuning_line(table);
  if (flags.quiet || line.empty()) return;
  say(table.note.empty() ? line + "\n" : fmt::format("warning: {}\n", line));
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
  if (flags.backend == "shm" &&
      std::find(request.worlds.begin(), request.worlds.end(), 1) != request.worlds.end()) {
    warn("--world 1 has no peers: it runs on backend local, not shm (nothing is sent)");
  }
  const bool any_sharded = std::any_of(
      request.strategies.begin(), request.strategies.end(),
      [&](const std::string& name) { return sharded(program.registry.find(name).formula); });
  if (most > 1 && any_sharded) {
    const sharding::ModelShape model = models::shape_of(request.base.model);
    std::string unit;
    for (const train::RunConfig& job : bench::blocks_of(request)) {
      if (unit.empty()) unit = bench::oversized_unit(job, model);
    }
    if (!unit.empty()) {
      warn(unit +
           ": it is whole while in use, so sharding saves little of the peak; try smaller "
           "--units (block or tensor)");
    }
  }
}

void resolve_backend(bench::Request& request, const Program& program) {
  if (program.ranks == nullptr) return;
  const auto timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(request.base.timeout_s * 1000));
  std::string found;
  for (const int world_size : request.worlds) {
    const std::string backend =
        program.ranks->backend_for({world_size, timeout, request.base.backend});
    const bool in_place = request.base.options.collectives == train::CollectiveMode::kInPlace;
    if (in_place && backend != "shm" && backend != "local") {
      throw UserError::format(
          "--collectives in-place: the ranks of {} share no memory; take --backend shm (one host) "
          "or --collectives direct",
          backend);
    }
    comm::refuse_link(request.base.link.has_value() || !request.sweep.links.empty(), backend);
    if (request.base.comm_thread && backend == "nccl") {
      throw UserError("--comm-thread: nccl carries its calls on streams of its own; leave it out");
    }
    if (found.empty() || world_size > 1) found = backend;
  }
  if (found != "local") request.base.backend = found;
}

void validate_all(const bench::Request& request, const Program& program, bool will_run) {
  for (train::RunConfig config : bench::blocks_of(request)) {
    for (const std::string& strategy : request.strategies) {
      config.strategy = strategy;
      program.validate(config);
      if (will_run && program.require_memory) program.require_memory(config);
    }
  }
}

bench::DocumentContext document_context(const Flags& flags, const Program& program) {
  return {program.args, flags.context, program.executable, program.torch_version};
}

std::string command_without(const Program& program, std::vector<std::string> without) {
  without.insert(without.end(), {"--quiet", "--explain"});
  return bench::command_of(program.args, without);
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
