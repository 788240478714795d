#include "common/comm/mpi/runtime.h"

#include <fmt/ranges.h>

#include <array>
#include <thread>

#include "common/comm/mpi/load.h"
#include "common/comm/mpi/texts.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find_first_of("\r\n"));
}

}  // namespace

std::shared_ptr<MpiRuntime> MpiRuntime::start() {
  static std::mutex mutex;
  static std::weak_ptr<MpiRuntime> running;
  static bool started = false;
  const std::lock_guard lock(mutex);
  if (auto runtime = running.lock()) return runtime;
  if (started) throw UserError("MPI has been finalised: keep its runtime while it is needed");
  const MpiLaunch launch = detect_mpi(built_mpi());
  auto runtime = std::make_shared<MpiRuntime>(load_mpi(launch.implementation), launch.ranks);
  started = true;
  running = runtime;
  return runtime;
}

MpiRuntime::MpiRuntime(const shardbench_mpi_api& api, int expected_ranks) : api_(api) {
  int joined = 0;
  int thread_safe = 0;
  check(api_.init(&joined, &thread_safe), "starting MPI");
  joined_ = joined != 0;
  try {
    require_usable(thread_safe, expected_ranks);
  } catch (...) {
    if (!joined_) api_.finalize();
    throw;
  }
}

void MpiRuntime::require_usable(int thread_safe, int expected_ranks) {
  if (thread_safe == 0) {
    throw UserError::format(
        "{} grants this process less than MPI_THREAD_SERIALIZED: {}", implementation(),
        joined_ ? "ask for it in MPI_Init_thread" : "use a build of it with support for threads");
  }
  check(api_.comm_open(&comm_), "duplicating the communicator of all processes");
  check(api_.comm_rank(comm_, &rank_, &world_size_), "asking for the rank");
  if (expected_ranks > 1 && world_size_ == 1) {
    throw UserError::format(
        "the launcher started {} processes, but {} sees one: start with the mpirun of {}, or set "
        "SHARDBENCH_MPI to the implementation that mpirun belongs to",
        expected_ranks, implementation(), implementation());
  }
}

MpiRuntime::~MpiRuntime() {
  if (abandoned_) return;
  api_.comm_close(comm_);
  if (!joined_) api_.finalize();
}

std::string MpiRuntime::library_version() const {
  std::array<char, 8192> text{};
  check(api_.version(text.data(), static_cast<int>(text.size())), "asking for the version");
  return first_line(text.data());
}

void MpiRuntime::abort(int exit_code) {
  abandon();
  api_.abort(exit_code);
}

void MpiRuntime::check(int code, std::string_view what) const {
  if (code == 0) [[likely]]
    return;
  std::array<char, 1024> text{};
  api_.error_text(code, text.data(), static_cast<int>(text.size()));
  throw JobAborted(fmt::format("{}, {}: {}", implementation(), what, first_line(text.data())));
}

std::vector<std::string> MpiRuntime::all_gather_text(std::string_view text,
                                                     std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + timeout;
  std::unique_lock lock(mutex_);
  const auto exchange = std::make_shared<TextExchange>(*this, comm_, text);
  while (!exchange->advance()) {
    if (Clock::now() >= end) {
      keep(exchange);
      abandon();
      throw JobAborted(fmt::format("rank {} waited {} ms for a text of rank {}", rank_,
                                   timeout.count(), fmt::join(exchange->missing(), ", ")));
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    lock.lock();
  }
  return exchange->take();
}

}  // namespace shardbench::comm
