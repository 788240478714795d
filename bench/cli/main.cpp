#include <csignal>

#include "bench/cli/program.h"
#include "bench/cli/strategies.h"
#include "common/train/runner.h"

namespace {

using namespace shardbench;

void ignore_signals() {
  for (int number : {SIGINT, SIGTERM}) std::signal(number, SIG_IGN);
}

/// The real engine: forked ranks. This process itself never touches LibTorch.
bench::Engine engine_for(const train::Registry& registry) {
  bench::Engine engine;
  engine.run = [&registry](const train::RunConfig& config, const train::Progress& progress,
                           const train::RankObserver& observer) {
    train::StrategyRun run = train::run_strategy(config, registry, progress, observer);
    // Results are still to be written: a second Ctrl-C must not cut them off.
    if (run.signal != 0) ignore_signals();
    return run;
  };
  engine.reference = train::run_reference;
  engine.judge = train::judge;
  engine.tune = [](const train::RunConfig& config) {
    train::TuningRun run = train::run_tuning(config);
    if (run.signal != 0) ignore_signals();
    return run;
  };
  return engine;
}

}  // namespace

int main(int argc, char** argv) {
  cli::Program program;
  program.registry = cli::all_strategies();
  program.engine = engine_for(program.registry);
  program.validate = [&program](const train::RunConfig& config) {
    train::validate(config, program.registry);
  };
  program.require_memory = [&program](const train::RunConfig& config) {
    train::require_memory(config, program.registry);
  };
  program.executable = cli::executable_path();
  program.torch_version = SHARDBENCH_TORCH_VERSION;
  program.args.assign(argv, argv + argc);
  return cli::run_program(program);
}
