#include "bench/cli/program.h"
#include "bench/cli/strategies.h"
#include "common/train/runner.h"

namespace {

using namespace shardbench;

/// The real engine: forked ranks. This process itself never touches LibTorch.
bench::Engine engine_for(const train::Registry& registry) {
  bench::Engine engine;
  engine.run = [&registry](const train::RunConfig& config, const train::Progress& progress,
                           const train::RankObserver& observer) {
    return train::run_strategy(config, registry, progress, observer);
  };
  engine.reference = train::run_reference;
  engine.judge = train::judge;
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
  program.executable = cli::executable_path();
  program.torch_version = SHARDBENCH_TORCH_VERSION;
  program.args.assign(argv, argv + argc);
  return cli::run_program(program);
}
