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

/// Prints as Google Benchmark does, and notices what could not be measured.
class Reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override { return inner_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) failed_ = failed_ || run.error_occurred;
    inner_->ReportRuns(runs);
  }
  void Finalize() override { inner_->Finalize(); }
  bool failed() const { return failed_; }

 private:
  // The library's own, which it keeps for good.
  benchmark::BenchmarkReporter* inner_ = benchmark::CreateDefaultDisplayReporter();
  bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_context();
  shardbench::micro::set_up();
  shardbench::micro::register_benchmarks();
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return reporter.failed() ? 1 : 0;
}
