// The suite over MPI: one process per rank, started by mpirun. Exit code 0: all right. With an
// argument something is done wrong, and what the user gets to read is printed: `order` issues
// different calls, `missing` leaves one out. `hosts`: the ranks are taken to be on two hosts, and
// all calls that can be are hierarchical.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>

#include "common/comm/launch/join.h"
#include "common/comm/mpi/mpi.h"
#include "common/core/error.h"
#include "tests/comm/conformance/suite.h"

namespace shardbench::comm {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 1;

/// Texts of very different lengths, and again right after.
std::vector<std::string> check_texts(MpiRuntime& runtime) {
  std::vector<std::string> failures;
  for (int round = 0; round < 3; ++round) {
    const auto text_of = [&](int rank) {
      return std::string(static_cast<std::size_t>(rank * (round == 1 ? 100'000 : 1)),
                         static_cast<char>('a' + rank + round));
    };
    const std::vector<std::string> all = runtime.all_gather_text(text_of(runtime.rank()));
    for (int rank = 0; rank < runtime.world_size(); ++rank) {
      if (all[static_cast<std::size_t>(rank)] == text_of(rank)) continue;
      failures.push_back(fmt::format("round {}: the text of rank {} is wrong", round, rank));
    }
  }
  return failures;
}

[[noreturn]] void do_wrong(const std::shared_ptr<MpiRuntime>& runtime, bool in_order) {
  const auto job = Job::create(
      {.world_size = runtime->world_size(), .timeout = std::chrono::milliseconds(1500)});
  const auto comm = make_mpi(runtime, job);
  const bool is_first = runtime->rank() == 0;
  comm->barrier({"together", Phase::kInit}).wait();
  float value = 1;
  if (is_first) {
    comm->all_reduce({&value, 1, DType::kFloat32}, ReduceOp::kSum, {"loss", Phase::kMetrics})
        .wait();
  } else if (in_order) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
  } else {
    comm->barrier({"end", Phase::kMetrics}).wait();
  }
  throw JobAborted("the job went on");
}

/// The first half of the ranks on one host, the others on another: each with memory of its own.
std::vector<std::string> check_on_two_hosts(const std::shared_ptr<MpiRuntime>& runtime) {
  const bool is_second = runtime->rank() >= runtime->world_size() / 2;
  setenv("SHARDBENCH_HOST", is_second ? "second" : "first", 1);
  JoinOptions options;
  options.rank = runtime->rank();
  options.world_size = runtime->world_size();
  options.timeout = std::chrono::seconds(60);
  options.share = [&](std::string_view text) { return runtime->all_gather_text(text).front(); };
  const std::unique_ptr<Group> group = join(options);
  const auto comm = make_mpi(runtime, *group, MpiRoute::kHierarchical);
  const auto wire = mpi_wire_matrix(*comm);
  return conformance::run_suite(*comm, wire.get(), conformance::WireRule::kSums);
}

int report(const std::vector<std::string>& failures) {
  for (const std::string& failure : failures) fmt::print(stderr, "{}\n", failure);
  return failures.empty() ? 0 : kFailed;
}

int run(std::string_view how) {
  const auto runtime = MpiRuntime::start();
  if (how == "hosts") return report(check_on_two_hosts(runtime));
  if (!how.empty()) do_wrong(runtime, how == "missing");
  if (runtime->rank() == 0) {
    fmt::print("{} x {}\n", runtime->library_version(), runtime->world_size());
  }
  std::vector<std::string> failures = check_texts(*runtime);
  const auto job =
      Job::create({.world_size = runtime->world_size(), .timeout = std::chrono::seconds(60)});
  for (int round = 0; round < 2; ++round) {  // the second communicator starts afresh
    const auto comm = make_mpi(runtime, job);
    const auto wire = mpi_wire_matrix(*comm);
    const std::vector<std::string> more = conformance::run_suite(*comm, wire.get());
    failures.insert(failures.end(), more.begin(), more.end());
  }
  return report(failures);
}

}  // namespace
}  // namespace shardbench::comm

int main(int argc, char** argv) {
  try {
    return shardbench::comm::run(argc > 1 ? argv[1] : "");
  } catch (const shardbench::UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return shardbench::comm::kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return shardbench::comm::kFailed;
  }
}
