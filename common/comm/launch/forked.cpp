#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "common/comm/launch/outcome.h"
#include "common/core/descriptor.h"
#include "common/core/error.h"
#include "common/core/signal_tap.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(3);  // for the rest, once one rank has failed

struct Child {
  pid_t pid = -1;
  Descriptor result;
  bool running = false;
};

/// Writes all of `text`; false when the memory for it cannot be had.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string read_all(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return {};
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = pread(fd, text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

/// The life of one rank's process.
[[noreturn]] void child_main(SegmentJob& job, int rank, int result_fd,
                             const std::function<std::string(int)>& rank_main) {
  int code = 1;
  std::string result;
  job.enter_process(rank);
  if (run_rank(job, rank, rank_main, result)) {
    code = 0;
    if (!write_all(result_fd, result)) {
      AbortRecord record = job.position_of(rank);
      record.message = fmt::format("rank {} could not hand over its result of {} bytes: {}", rank,
                                   result.size(), std::strerror(errno));
      job.abort(record);
      code = 1;
    }
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);  // no destructors of the launcher's objects, no atexit handlers
}

/// How a child ended that did not end as it should: "was killed by signal 9 (Killed)".
std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({}){}", number, strsignal(number),
                       number == SIGKILL ? ", perhaps for want of memory" : "");
  }
  return fmt::format("exited with code {} before it had finished", WEXITSTATUS(status));
}

class Launcher {
 public:
  Launcher(SegmentJob& job, const std::function<std::string(int)>& rank_main,
           const std::function<void(std::int64_t)>& on_progress)
      : job_(job), rank_main_(rank_main), on_progress_(on_progress), watch_(job) {}
  ~Launcher() {
    kill_all();  // only if something threw in between
    for (const Child& child : children_) {
      if (child.running) waitpid(child.pid, nullptr, 0);
    }
  }

  JobOutcome run() {
    start();
    while (running_ > 0) {
      const int received = tap_.wait(std::chrono::milliseconds(50));
      if (received != 0) interrupt(received);
      reap();
      watch_.check();
      report_progress();
      if (job_.is_aborted()) end_the_rest();
    }
    std::vector<std::string> results;
    for (const Child& child : children_) results.push_back(read_all(child.result.get()));
    return make_outcome(job_, std::move(results), signal_);
  }

 private:
  void report_progress() {
    const std::int64_t done = job_.progress();
    if (!on_progress_ || done <= reported_) return;
    reported_ = done;
    on_progress_(done);
  }

  void start() {
    std::cout.flush();
    std::fflush(nullptr);  // or children would write the launcher's buffered output again
    const pid_t launcher = getpid();
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      Descriptor result(memfd_create("shardbench-result", MFD_CLOEXEC));
      const pid_t pid = result.get() < 0 ? -1 : fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != launcher) _exit(1);  // it died before the line above
        tap_.restore_in_child();
        child_main(job_, rank, result.get(), rank_main_);
      }
      if (pid < 0) {
        AbortRecord record;
        record.rank = rank;
        record.message = fmt::format("cannot start rank {}: {}", rank, std::strerror(errno));
        record.reason = AbortRecord::Reason::kLost;
        job_.abort(record);
      } else {
        ++running_;
      }
      children_.push_back({pid, std::move(result), pid > 0});
      if (pid < 0) return;
    }
  }

  void reap() {
    for (std::size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      int status = 0;
      if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      --running_;
      const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
                        job_.segment().rank(static_cast<int>(i)).ended.load() != 0;
      if (!well) lost(static_cast<int>(i), status);
    }
  }

  void lost(int rank, int status) {
    if (job_.is_aborted()) return;
    // A signal to the whole process group reaches the ranks at the same time as the launcher.
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) {
      const int received = tap_.wait(std::chrono::milliseconds(100));
      if (received != 0) return interrupt(received);
    }
    AbortRecord record = job_.position_of(rank);
    record.reason = AbortRecord::Reason::kLost;
    record.message = fmt::format("{} {}", describe_position(job_, rank), describe_end(status));
    job_.abort(record);
  }

  void interrupt(int number) {
    if (signal_ == 0) signal_ = number;
    AbortRecord record;
    record.reason = AbortRecord::Reason::kRequested;
    record.message = fmt::format("interrupted by signal {} ({})", number, strsignal(number));
    job_.abort(record);
    kill_all();
  }

  void end_the_rest() {
    const auto now = Clock::now();
    if (!failed_at_) failed_at_ = now;
    if (now - *failed_at_ > kGrace) kill_all();
  }

  void kill_all() {
    for (const Child& child : children_) {
      if (child.running) kill(child.pid, SIGKILL);
    }
  }

  SegmentJob& job_;
  const std::function<std::string(int)>& rank_main_;
  const std::function<void(std::int64_t)>& on_progress_;
  std::int64_t reported_ = 0;
  SignalTap tap_;
  StallWatch watch_;
  std::vector<Child> children_;
  int running_ = 0;
  int signal_ = 0;
  std::optional<Clock::time_point> failed_at_;
};

}  // namespace

JobOutcome run_forked(std::shared_ptr<Job> job,
                      const std::function<std::string(int rank)>& rank_main,
                      const std::function<void(std::int64_t done)>& on_progress) {
  const auto segment_job = as_segment_job(job);
  Launcher launcher(*segment_job, rank_main, on_progress);
  JobOutcome outcome = launcher.run();
  outcome.results.resize(static_cast<std::size_t>(job->world_size()));
  return outcome;
}

}  // namespace shardbench::comm
