#include <csignal>
#include <cstdio>
#include <memory>

#include "bench/cli/launched.h"
#include "bench/cli/program.h"
#include "bench/cli/strategies.h"
#include "bench/peers/training.h"
#include "common/comm/launch/environment.h"
#include "common/comm/store/tcp_store.h"
#include "common/core/error.h"
#include "common/train/initial_file.h"
#include "common/train/runner.h"

namespace {

using namespace shardbench;

void ignore_signals() {
  for (int number : {SIGINT, SIGTERM}) std::signal(number, SIG_IGN);
}

/// The real engine, on the program's ranks. Where it forks them, this process itself never touches
/// LibTorch.
bench::Engine engine_for(const cli::Program& program) {
  bench::Engine engine;
  engine.run = [&program](const train::RunConfig& config, const train::Progress& progress,
                          const train::RankObserver& observer) {
    train::StrategyRun run =
        train::run_strategy(*program.ranks, config, program.registry, progress, observer);
    // Results are still to be written: a second Ctrl-C must not cut them off.
    if (run.signal != 0) ignore_signals();
    return run;
  };
  engine.reference = [&program](const train::RunConfig& config, train::AccumulationOrder order,
                                const train::Progress& progress) {
    return train::run_reference(*program.ranks, config, order, progress);
  };
  engine.judge = train::judge;
  engine.tune = [&program](const train::RunConfig& config) {
    train::TuningRun run = train::run_tuning(*program.ranks, config);
    if (run.signal != 0) ignore_signals();
    return run;
  };
  engine.limit = [&program](const train::RunConfig& config) {
    train::LimitRun run = train::run_limit(*program.ranks, config);
    if (run.signal != 0) ignore_signals();
    return run;
  };
  const auto peers = std::make_shared<bench::PeerTrainer>(
      bench::find_peer_tools(cli::executable_path()),
      [&program](const train::RunConfig& config, const std::string& path) {
        const train::InitialFile file = train::write_initial_weights(*program.ranks, config, path);
        return bench::WeightsError{file.error, file.signal};
      });
  engine.run_peer = [peers](const bench::PeerKind& kind, const train::RunConfig& config,
                            const train::Progress& progress) {
    bench::PeerRun run = peers->run(kind, config, progress);
    if (run.signal != 0) ignore_signals();
    return run;
  };
  return engine;
}

}  // namespace

int main(int argc, char** argv) {
  cli::Program program;
  program.registry = cli::all_strategies();
  program.engine = engine_for(program);
  program.validate = [&program](const train::RunConfig& config) {
    train::validate(config, program.registry);
  };
  program.require_memory = [&program](const train::RunConfig& config) {
    train::require_memory(config, program.registry);
  };
  program.executable = cli::executable_path();
  program.torch_version = SHARDBENCH_TORCH_VERSION;
  program.args.assign(argv, argv + argc);
  try {
    const comm::LaunchEnvironment found = comm::detect_launcher();
    if (found.launcher != comm::Launcher::kNone) {
      return cli::run_launched(program, found, comm::open_tcp_store);
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "shardbench: %s\n", error.what());
    return cli::kExitUsage;
  } catch (const JobAborted& error) {
    std::fprintf(stderr, "shardbench: %s\n", error.what());
    return cli::kExitLost;
  }
  program.ranks = comm::forked_ranks();
  return cli::run_program(program);
}
