#include "tests/cli/program/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace shardbench::cli {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "shardbench_cli_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

[[noreturn]] void become_program(const std::vector<std::string>& arguments,
                                 const RunOptions& options, const fs::path& folder) {
  const auto redirect = [](const fs::path& path, int flags, int to) {
    const int descriptor = ::open(path.c_str(), flags, 0600);
    if (descriptor < 0 || ::dup2(descriptor, to) < 0) ::_exit(126);
    ::close(descriptor);
  };
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(options.out.empty() ? folder / "out" : fs::path(options.out),
           O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect(folder / "err", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  for (const std::string& variable : options.environment) ::putenv(::strdup(variable.c_str()));
  std::vector<char*> argv;
  for (const std::string& word : options.launcher) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(const_cast<char*>(SHARDBENCH_PROGRAM));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  ::_exit(127);
}

}  // namespace

Outcome run_shardbench(const std::vector<std::string>& arguments, const RunOptions& options) {
  using Clock = std::chrono::steady_clock;
  // What the program leaves behind becomes a child of this process, where it is seen.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const TemporaryFolder folder;
  const Clock::time_point start = Clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) become_program(arguments, options, folder.path());
  std::thread killer;
  if (options.signal != 0) {
    killer = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(options.signal_after_s));
      ::kill(pid, options.signal);
    });
  }
  int status = 0;
  // WNOWAIT keeps the id taken until no signal can hit a stranger.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  if (killer.joinable()) killer.join();
  ::waitpid(pid, &status, 0);
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.out = read_file(folder.path() / "out");
  outcome.err = read_file(folder.path() / "err");
  return outcome;
}

int children_left() {
  int left = 0;
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) ++left;  // one or more live on
    if (pid <= 0) return left;
  }
}

std::vector<std::string> small_job(std::vector<std::string> arguments) {
  for (const char* flag :
       {"--layers", "2", "--heads", "2", "--hidden", "32", "--vocab", "64", "--context", "16",
        "--seq", "16", "--batch", "2", "--data", "synthetic"}) {
    arguments.emplace_back(flag);
  }
  return arguments;
}

}  // namespace shardbench::cli
