#include "bench/peers/tools.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using Reason = comm::AbortRecord::Reason;
using End = ChildOutcome::End;

constexpr std::size_t kLongestReason = 300;

comm::AbortRecord record(Reason reason, std::string message) {
  comm::AbortRecord made;
  made.reason = reason;
  made.message = std::move(message);
  return made;
}

std::string install_hint(const std::string& framework) {
  return fmt::format("bash bench/peers/setup.sh {} installs it", framework);
}

/// ": the last thing it said", without what does not print.
std::string last_words(const ChildOutcome& outcome) {
  std::string text = outcome.reason.substr(0, kLongestReason);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.empty() ? "" : ": " + text;
}

}  // namespace

bool PeerTools::has_python() const { return ::access(python.c_str(), X_OK) == 0; }

PeerTools find_peer_tools(const std::string& executable) {
  namespace fs = std::filesystem;
  PeerTools tools;
  tools.scripts = SHARDBENCH_PEERS_FOLDER;
  const char* given = std::getenv("SHARDBENCH_PEERS_PYTHON");
  const fs::path build = fs::path(executable).parent_path().parent_path();
  tools.python = given != nullptr && *given != '\0'
                     ? std::string(given)
                     : (build / "peers-venv" / "bin" / "python").string();
  return tools;
}

comm::AbortRecord failure_of(const ChildOutcome& outcome, const std::string& framework) {
  switch (outcome.end) {
    case End::kKilled:
      return record(Reason::kLost, fmt::format("killed by signal {} ({}){}", outcome.code,
                                               strsignal(outcome.code), last_words(outcome)));
    case End::kSilent:
      return record(Reason::kTimeout, fmt::format("no step within --timeout, so it was ended{}",
                                                  last_words(outcome)));
    case End::kNotStarted:
      return record(Reason::kThrew,
                    fmt::format("cannot be started ({}); {}", std::strerror(outcome.code),
                                install_hint(framework)));
    case End::kInterrupted:
      return record(Reason::kRequested, "interrupted");
    case End::kExited:
      break;
  }
  std::string text = fmt::format("exit status {}{}", outcome.code, last_words(outcome));
  if (outcome.reason.starts_with("ModuleNotFoundError")) text += "; " + install_hint(framework);
  return record(Reason::kThrew, std::move(text));
}

comm::AbortRecord not_installed(const PeerTools& tools, const std::string& framework) {
  return record(Reason::kThrew,
                fmt::format("{} is not there; {}", tools.python, install_hint(framework)));
}

comm::AbortRecord unusable_result(const std::string& why) {
  return record(Reason::kThrew, "its result cannot be used: " + why);
}

}  // namespace shardbench::bench
