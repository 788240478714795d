#include "common/comm/launch/pass_memory.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "common/comm/launch/socket.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// An abstract address: it lives in the kernel, not in a folder.
struct LocalAddress {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit LocalAddress(const std::string& name) {
    SHARDBENCH_CHECK(name.size() + 1 < sizeof(address.sun_path), "name {}", name);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Descriptor local_socket() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// One byte that carries a file descriptor with it.
struct Carrier {
  char byte = 'm';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};

  Carrier() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
};

void send_descriptor(int socket, int fd) {
  Carrier carrier;
  cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
  if (sendmsg(socket, &carrier.message, MSG_NOSIGNAL) != 1) {
    throw UserError::format("cannot hand over shared memory: {}", std::strerror(errno));
  }
}

}  // namespace

MemoryServer::MemoryServer(const std::string& name) : socket_(local_socket()), name_(name) {
  const LocalAddress address(name);
  if (!socket_.valid() || bind(socket_.get(), address.get(), address.size) != 0 ||
      listen(socket_.get(), SOMAXCONN) != 0) {
    throw UserError::format("cannot offer shared memory as {}: {}", name, std::strerror(errno));
  }
}

void MemoryServer::serve(int memory, int processes, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (int served = 0; served < processes; ++served) {
    if (!await_readable(socket_.get(), deadline)) {
      throw UserError::format("{} of {} ranks of this host did not fetch its shared memory",
                              processes - served, processes);
    }
    const Descriptor caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (caller.valid()) send_descriptor(caller.get(), memory);
  }
}

Descriptor fetch_memory(const std::string& name, std::chrono::milliseconds timeout) {
  const LocalAddress address(name);
  const Descriptor socket = local_socket();
  if (!socket.valid() || connect(socket.get(), address.get(), address.size) != 0 ||
      !await_readable(socket.get(), Clock::now() + timeout)) {
    throw UserError::format("cannot fetch this host's shared memory from {}: {}", name,
                            std::strerror(errno));
  }
  Carrier carrier;
  int fd = -1;
  if (recvmsg(socket.get(), &carrier.message, MSG_CMSG_CLOEXEC) == 1) {
    const cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message);
    if (head != nullptr && head->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    }
  }
  if (fd < 0) throw UserError::format("no shared memory came from {}", name);
  return Descriptor(fd);
}

}  // namespace shardbench::comm
