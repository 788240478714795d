#include "bench/cli/launched.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "bench/cli/screen.h"
#include "common/comm/launch/join.h"
#include "common/core/error.h"

namespace shardbench::cli {
namespace {

using comm::AbortRecord;

/// How long a rank waits for rank 0 to say why the job ended, before it goes itself: the launcher
/// kills the others as soon as one has gone.
constexpr std::chrono::milliseconds kLastWords{3000};

/// `--timeout` of the command line, which is needed before that is parsed; its default if there is
/// none that makes sense.
std::chrono::milliseconds timeout_in(const std::vector<std::string>& args) {
  const std::string name = "--timeout";
  double seconds = 300;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string text;
    if (args[i] == name && i + 1 < args.size()) text = args[i + 1];
    if (args[i].starts_with(name + "=")) text = args[i].substr(name.size() + 1);
    const double value = std::strtod(text.c_str(), nullptr);
    if (value >= 0.001 && value <= 1e6) seconds = value;
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// The flags of a command line by name, the command and other words by their place.
comm::NamedValues options_of(const Program& program) {
  comm::NamedValues values{{"the program's version", version_line(program)}};
  const std::vector<std::string>& args = program.args;
  for (std::size_t i = 1; i < args.size(); ++i) {
    if (!args[i].starts_with("-")) {
      values.emplace_back(i == 1 ? "the command" : fmt::format("argument {}", i), args[i]);
      continue;
    }
    const std::size_t equals = args[i].find('=');
    std::string value = equals == std::string::npos ? "" : args[i].substr(equals + 1);
    const std::string flag = args[i].substr(0, equals);
    const bool has_value = i + 1 < args.size() && !args[i + 1].starts_with("-");
    if (equals == std::string::npos && has_value) value = args[++i];
    values.emplace_back(flag, value);
  }
  return values;
}

/// The exit code of a job that ended by `record`.
int code_of(const AbortRecord& record) {
  switch (record.reason) {
    case AbortRecord::Reason::kRequested:
      return kExitUsage;
    case AbortRecord::Reason::kThrew:
      return kExitWrong;
    case AbortRecord::Reason::kLost:
    case AbortRecord::Reason::kTimeout:
      break;
  }
  return kExitLost;
}

/// Goes without looking back: peers may be gone, so nothing collective may happen any more.
[[noreturn]] void leave(comm::Group& group, const AbortRecord& record) {
  std::fflush(nullptr);
  group.await_rank_0(kLastWords);
  _exit(code_of(record));
}

}  // namespace

int run_launched(Program& program, const comm::LaunchEnvironment& found,
                 const comm::OpenStore& open_store) {
  std::atomic<bool> told{false};
  const auto tell = [&told](int rank, const AbortRecord& record) {
    if (rank != (record.rank == 0 ? 1 : 0) || told.exchange(true)) return;
    std::fprintf(stderr, "shardbench: %s\n", record.message.c_str());
  };
  comm::Launched launched = comm::join_launched(found, timeout_in(program.args), open_store, tell);
  program.told = [&told] { return told.load(); };
  comm::Group& group = *launched.group;
  program.ranks = std::move(launched.ranks);
  if (!program.speaks()) be_silent();
  program.agree = [&] { comm::require_equal(group, options_of(program)); };
  program.refused = [&](const std::string& message) {
    AbortRecord record;
    record.rank = group.rank();
    record.reason = AbortRecord::Reason::kRequested;
    record.message = fmt::format("rank {}: {}", group.rank(), message);
    group.abort(record);
  };
  const int code = run_program(program);
  if (const auto record = group.job()->aborted()) leave(group, *record);
  program.ranks.reset();
  return code;
}

}  // namespace shardbench::cli
