#include "common/core/signal_tap.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/core/error.h"

namespace shardbench {

int SignalTap::make() {
  sigset_t taken;
  sigemptyset(&taken);
  for (int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken, number);
  pthread_sigmask(SIG_BLOCK, &taken, &previous_);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;  // an ignored SIGCHLD would reap the children unseen
  sigaction(SIGCHLD, &standard, &child_action_);
  const int fd = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
  SHARDBENCH_CHECK(fd >= 0, "signalfd: {}", std::strerror(errno));
  return fd;
}

SignalTap::~SignalTap() {
  sigaction(SIGCHLD, &child_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

int SignalTap::wait(std::chrono::milliseconds limit) {
  pollfd item{fd_.get(), POLLIN, 0};
  if (poll(&item, 1, static_cast<int>(limit.count())) <= 0) return 0;
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGINT || number == SIGTERM) return number;
  }
  return 0;
}

void SignalTap::restore_in_child() const {
  sigaction(SIGCHLD, &child_action_, nullptr);
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

}  // namespace shardbench
