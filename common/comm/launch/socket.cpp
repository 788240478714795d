#include "common/comm/launch/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(SocketDeadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

/// One attempt of at most a second. Empty when it fails.
Descriptor connect_once(const addrinfo& address, SocketDeadline deadline) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd item{socket.get(), POLLOUT, 0};
    if (poll(&item, 1, std::min(1000, milliseconds_until(deadline))) <= 0) return {};
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return {};
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

}  // namespace

Listener listen_on_free_port() {
  Listener listener;
  listener.socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  socklen_t size = sizeof(any);
  if (!listener.socket.valid() || bind(listener.socket.get(), address, size) != 0 ||
      listen(listener.socket.get(), SOMAXCONN) != 0 ||
      getsockname(listener.socket.get(), address, &size) != 0) {
    throw UserError::format("rank 0 cannot listen on a TCP port: {}", std::strerror(errno));
  }
  listener.port = ntohs(any.sin_port);
  return listener;
}

std::vector<std::string> interface_addresses() {
  std::vector<std::string> addresses;
  std::vector<std::string> loopbacks;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {"127.0.0.1"};
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != AF_INET) continue;
    if ((item->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* const address = reinterpret_cast<const sockaddr_in*>(item->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    ((item->ifa_flags & IFF_LOOPBACK) != 0 ? loopbacks : addresses).emplace_back(text);
  }
  freeifaddrs(list);
  addresses.insert(addresses.end(), loopbacks.begin(), loopbacks.end());
  return addresses;
}

Descriptor connect_to(const std::vector<std::string>& addresses, int port,
                      SocketDeadline deadline) {
  do {
    for (const std::string& host : addresses) {
      addrinfo hints{};
      hints.ai_family = AF_INET;
      hints.ai_socktype = SOCK_STREAM;
      addrinfo* found = nullptr;
      if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) continue;
      Descriptor socket = connect_once(*found, deadline);
      freeaddrinfo(found);
      if (socket.valid()) return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  return {};
}

bool await_readable(int fd, SocketDeadline deadline) {
  pollfd item{fd, POLLIN, 0};
  return poll(&item, 1, milliseconds_until(deadline)) > 0;
}

bool send_frame(int fd, char kind, std::string_view body, std::chrono::milliseconds limit) {
  std::string frame(sizeof(std::uint32_t), '\0');
  const auto length = static_cast<std::uint32_t>(body.size());
  std::memcpy(frame.data(), &length, sizeof(length));
  frame += kind;
  frame += body;
  std::string_view left = frame;
  while (!left.empty()) {
    const ssize_t sent = send(fd, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd item{fd, POLLOUT, 0};
    if (poll(&item, 1, static_cast<int>(limit.count())) <= 0) return false;
  }
  return true;
}

bool FrameReader::read_from(int fd) {
  char block[1 << 16];
  for (;;) {
    const ssize_t got = recv(fd, block, sizeof(block), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(block, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

std::optional<Frame> FrameReader::next() {
  std::uint32_t length = 0;
  constexpr std::size_t kHead = sizeof(length) + 1;
  if (buffer_.size() < kHead) return std::nullopt;
  std::memcpy(&length, buffer_.data(), sizeof(length));
  if (buffer_.size() < kHead + length) return std::nullopt;
  Frame frame{buffer_[sizeof(length)], buffer_.substr(kHead, length)};
  buffer_.erase(0, kHead + length);
  return frame;
}

}  // namespace shardbench::comm
