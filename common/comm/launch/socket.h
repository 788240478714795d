#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/descriptor.h"

namespace shardbench::comm {

using SocketDeadline = std::chrono::steady_clock::time_point;

/// Listens on a free TCP port of every interface.
struct Listener {
  Descriptor socket;
  int port = 0;
};
Listener listen_on_free_port();

/// The IPv4 addresses of this host's interfaces that are up, the loopback last.
std::vector<std::string> interface_addresses();

/// Connects to the first of `addresses` that answers with the port open, trying again until the
/// deadline. Empty when none did.
Descriptor connect_to(const std::vector<std::string>& addresses, int port, SocketDeadline deadline);

/// Waits until a descriptor can be read; false when the deadline has passed.
bool await_readable(int fd, SocketDeadline deadline);

/// One message of a connection: a length, a kind, a body.
struct Frame {
  char kind = 0;
  std::string body;
};

/// False when the peer has gone or takes nothing for `limit`.
bool send_frame(int fd, char kind, std::string_view body, std::chrono::milliseconds limit);

/// Takes what has arrived on a socket apart into frames.
class FrameReader {
 public:
  /// Reads what is there without blocking. False at the end of the connection.
  bool read_from(int fd);
  std::optional<Frame> next();

 private:
  std::string buffer_;
};

}  // namespace shardbench::comm
