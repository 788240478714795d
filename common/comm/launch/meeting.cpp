#include "common/comm/launch/meeting.h"

#include <fmt/ranges.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <optional>

#include "common/comm/launch/control_text.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kHello = 'h';  // token, rank
constexpr std::chrono::milliseconds kHelloLimit{2000};

std::string random_token() {
  std::array<unsigned char, 8> bytes{};
  SHARDBENCH_CHECK_EQ(getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// Takes one connection; the rank behind it, or 0 for a stranger.
int greet(const Listener& listener, Meeting& meeting) {
  Connection caller;
  caller.socket =
      Descriptor(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller.socket.valid()) return 0;
  const auto deadline = Clock::now() + kHelloLimit;
  std::optional<Frame> frame;
  while (!frame) {
    if (!await_readable(caller.socket.get(), deadline)) return 0;
    if (!caller.reader.read_from(caller.socket.get())) return 0;
    frame = caller.reader.next();
  }
  if (frame->kind != kHello) return 0;
  const std::vector<std::string> hello = unpack(frame->body);
  if (hello.size() != 2 || hello[0] != meeting.token) return 0;
  const int rank = std::stoi(hello[1]);
  meeting.connections.at(static_cast<std::size_t>(rank)) = std::move(caller);
  return rank;
}

void accept_all(const Control::Options& options, Meeting& meeting) {
  const Listener listener = listen_on_free_port();
  meeting.token = random_token();
  std::vector<std::string> told{meeting.token, std::to_string(listener.port)};
  for (std::string& address : interface_addresses()) told.push_back(std::move(address));
  if (!options.extra_address.empty()) told.push_back(options.extra_address);
  options.share(pack(told));
  const auto deadline = Clock::now() + options.timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < options.world_size; ++rank) missing.push_back(rank);
  while (!missing.empty()) {
    if (!await_readable(listener.socket.get(), deadline)) {
      throw UserError::format("{} of {} ranks did not join within {:.3g} s: {} missing",
                              missing.size(), options.world_size,
                              static_cast<double>(options.timeout.count()) / 1e3,
                              ranks_text(missing));
    }
    if (const int rank = greet(listener, meeting); rank > 0) std::erase(missing, rank);
  }
}

void call_rank_0(const Control::Options& options, Meeting& meeting) {
  std::vector<std::string> told = unpack(options.share(""));
  SHARDBENCH_CHECK(told.size() >= 3, "rank 0 told no address");
  meeting.token = told[0];
  const int port = std::stoi(told[1]);
  told.erase(told.begin(), told.begin() + 2);
  Descriptor& socket = meeting.connections[0].socket;
  socket = connect_to(told, port, Clock::now() + options.timeout);
  if (!socket.valid()) {
    throw UserError::format("rank {} cannot reach rank 0 at {} port {}: is a firewall between?",
                            options.rank, fmt::join(told, " or "), port);
  }
  send_frame(socket.get(), kHello, pack({meeting.token, std::to_string(options.rank)}),
             options.timeout);
}

}  // namespace

Meeting meet(const Control::Options& options) {
  Meeting meeting;
  meeting.connections.resize(static_cast<std::size_t>(options.world_size));
  options.rank == 0 ? accept_all(options, meeting) : call_rank_0(options, meeting);
  return meeting;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace shardbench::comm
