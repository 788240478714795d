#include "bench/peers/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>

#include "common/core/descriptor.h"
#include "common/core/error.h"
#include "common/core/signal_tap.h"

namespace shardbench::bench {
namespace {

using Clock = std::chrono::steady_clock;
using End = ChildOutcome::End;
constexpr std::size_t kLongestLine = std::size_t{1} << 26;

/// Both ends of a pipe; what is written by a child is read without waiting.
struct Pipe {
  Pipe() {
    int ends[2];
    SHARDBENCH_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe2: {}", std::strerror(errno));
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  Descriptor read;
  Descriptor write;
};

/// Cuts what comes out of a descriptor into lines.
class LineReader {
 public:
  explicit LineReader(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  template <typename OnLine>
  void drain(const OnLine& on_line) {
    char piece[1 << 16];
    for (;;) {
      const ssize_t n = read(descriptor_.get(), piece, sizeof(piece));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      text_.append(piece, static_cast<std::size_t>(n));
      std::size_t begin = 0;
      for (std::size_t end; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1) {
        on_line(text_.substr(begin, end - begin));
      }
      text_.erase(0, begin);
      if (text_.size() > kLongestLine) text_.clear();
    }
  }
  /// A last line without an end.
  template <typename OnLine>
  void finish(const OnLine& on_line) {
    drain(on_line);
    if (!text_.empty()) on_line(text_);
    text_.clear();
  }

 private:
  Descriptor descriptor_;
  std::string text_;
};

/// While it lives, orphans among this process's descendants become its children.
class Subreaper {
 public:
  Subreaper() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

/// Children of this process's only thread that forks; empty where the kernel does not list them.
std::vector<pid_t> children() {
  std::ifstream list(fmt::format("/proc/self/task/{}/children", gettid()));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
  return pids;
}

class Child {
 public:
  explicit Child(const ChildRequest& request)
      : request_(request), out_(std::move(pipes_[0].read)), err_(std::move(pipes_[1].read)) {}

  ChildOutcome run() {
    start();
    Clock::time_point deadline = Clock::now() + request_.silence;
    while (pid_ > 0 && !ended_) {
      const int received = tap_.wait(std::chrono::milliseconds(50));
      if (read_output()) deadline = Clock::now() + request_.silence;
      if (received != 0) {
        outcome_.signal = received;
        end_as(End::kInterrupted);
      } else if (Clock::now() > deadline) {
        end_as(End::kSilent);
      } else {
        look_whether_ended();
      }
    }
    if (pid_ > 0) clear_away();
    out_.finish([&](const std::string& line) { take_line(line); });
    err_.finish([&](const std::string& line) { take_error(line); });
    return outcome_;
  }

 private:
  void start() {
    std::cout.flush();
    std::fflush(nullptr);  // or the child would have this process's buffered output
    Pipe status;           // closed by exec; else it has errno
    const pid_t launcher = getpid();
    pid_ = fork();
    if (pid_ == 0) become_program(launcher, status.write.get());
    SHARDBENCH_CHECK(pid_ > 0, "fork: {}", std::strerror(errno));
    setpgid(pid_, pid_);  // here too: whoever comes first
    for (Pipe& pipe : pipes_) pipe.write.reset();
    status.write.reset();
    fcntl(status.read.get(), F_SETFL, 0);
    int error = 0;
    if (read(status.read.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))) {
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
      outcome_.end = End::kNotStarted;
      outcome_.code = error;
    }
  }

  [[noreturn]] void become_program(pid_t launcher, int status) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    tap_.restore_in_child();
    signal(SIGINT, SIG_DFL);  // its group gets none from the terminal
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(pipes_[0].write.get(), STDOUT_FILENO);
    dup2(pipes_[1].write.get(), STDERR_FILENO);
    for (const auto& [name, value] : request_.environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : request_.command)
      argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv.front(), argv.data());
    const int error = errno;
    const ssize_t ignored = write(status, &error, sizeof(error));
    _exit(ignored > 0 ? 127 : 126);
  }

  bool take_line(const std::string& line) { return request_.on_line && request_.on_line(line); }
  void take_error(const std::string& line) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) outcome_.reason = line;
  }

  /// Returns whether there was a sign of life.
  bool read_output() {
    bool alive = false;
    out_.drain([&](const std::string& line) { alive = take_line(line) || alive; });
    err_.drain([&](const std::string& line) { take_error(line); });
    return alive;
  }

  /// It stays a zombie until all is cleared away, so that its group's number stays taken.
  void look_whether_ended() {
    siginfo_t info{};
    const auto id = static_cast<id_t>(pid_);
    if (waitid(P_PID, id, &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid == 0) return;
    ended_ = true;
    outcome_.end = info.si_code == CLD_EXITED ? End::kExited : End::kKilled;
    outcome_.code = info.si_status;
  }

  void end_as(End end) {
    ended_ = true;
    outcome_.end = end;
  }

  /// Kills and reaps its group and all that became a child of this process.
  void clear_away() const {
    do {
      kill(-pid_, SIGKILL);
      for (const pid_t pid : children()) kill(pid, SIGKILL);
    } while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR);
  }

  const ChildRequest& request_;
  Subreaper subreaper_;
  SignalTap tap_;
  Pipe pipes_[2];  ///< its standard output, its standard error
  LineReader out_;
  LineReader err_;
  pid_t pid_ = -1;
  bool ended_ = false;
  ChildOutcome outcome_;
};

}  // namespace

ChildOutcome run_child(const ChildRequest& request) { return Child(request).run(); }

}  // namespace shardbench::bench
