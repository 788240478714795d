#include <fmt/format.h>

#include "bench/micro/micro.h"
#include "common/core/build_info.h"
#include "common/core/machine_info.h"

namespace {

/// What a result means nothing without, beside what Google Benchmark writes by itself.
void add_context() {
  const shardbench::MachineInfo machine = shardbench::machine_info();
  const shardbench::BuildInfo build = shardbench::build_info();
  const auto add = [](const char* key, std::string_view value) {
    benchmark::AddCustomContext(key, std::string(value));
  };
  add("cpu_model", machine.cpu_model);
  add("usable_cpus", fmt::format("{}", machine.num_cpus));
  add("memory_bytes", fmt::format("{}", machine.memory_bytes));
  add("kernel", machine.kernel);
  add("torch_version", shardbench::micro::torch_version());
  add("shardbench_version", build.version);
  add("git_sha", build.git_sha);
  add("build_type", build.build_type);
  add("compiler", build.compiler);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_context();
  shardbench::micro::set_up();
  shardbench::micro::register_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
