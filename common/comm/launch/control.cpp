#include "common/comm/launch/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>
#include "common/comm/launch/control_text.h"
#include "common/comm/launch/socket.h"

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSignInterval{250};
constexpr milliseconds kSendLimit{10'000};

enum Kind : char {
  kHello = 'h',    // token, rank
  kText = 't',     // number of the exchange, text
  kTexts = 'T',    // number of the exchange, all texts
  kAbort = 'a',    // record
  kSign = 's',     // rank, sign
  kFarewell = 'f'  // nothing
};

std::string random_token() {
  std::array<unsigned char, 8> bytes{};
  SHARDBENCH_CHECK_EQ(getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// One end of a connection between rank 0 and another rank.
struct Link {
  Descriptor socket;
  FrameReader reader;
  std::mutex sending;
  bool farewell = false;
  std::atomic<bool> open{false};
};

/// Rank 0 has a link to every other rank, the others have one to rank 0.
class Star : public Control {
 public:
  explicit Star(const Options& options)
      : options_(options),
        links_(static_cast<std::size_t>(options.world_size)),
        signs_(static_cast<std::size_t>(options.world_size)),
        seen_(static_cast<std::size_t>(options.world_size), Clock::now()),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    options_.rank == 0 ? accept_all() : call_rank_0();
  }

  ~Star() override {
    stopping_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
    for (int peer = 0; peer < options_.world_size; ++peer) send(peer, kFarewell, "");
    // Closing before the others have said farewell would be their lost rank 0.
    const auto until = Clock::now() + kSendLimit;
    for (Link& link : links_) {
      while (link.open && !aborted_ && Clock::now() < until) {
        if (!await_readable(link.socket.get(), until) || !take(link)) link.open = false;
      }
    }
  }

  void start(ControlEvents events) override {
    events_ = std::move(events);
    thread_ = std::thread([this] { run(); });
  }

  std::vector<std::string> exchange(std::string_view text) override {
    std::unique_lock lock(mutex_);
    const std::uint64_t number = ++exchanges_;
    if (options_.rank == 0) {
      put_text(0, number, std::string(text));
    } else {
      lock.unlock();
      send(0, kText, pack({std::to_string(number), std::string(text)}));
      lock.lock();
    }
    while (!results_.contains(number)) {
      if (failure_) throw JobAborted(failure_->message);
      fail_if_late(number);
      arrived_.wait_for(lock, milliseconds(100));
    }
    return std::move(results_.extract(number).mapped());
  }

  void abort(const AbortRecord& record) noexcept override {
    try {
      const std::string body = pack_record(record);
      for (int peer = 0; peer < options_.world_size; ++peer) send(peer, kAbort, body);
      const std::lock_guard lock(mutex_);
      note_failure(record);
    } catch (const std::exception&) {  // out of memory: the connection's end tells the others
    }
  }

  Sign sign_of(int rank) const override {
    const std::lock_guard lock(mutex_);
    return signs_[static_cast<std::size_t>(rank)];
  }

  const std::string& token() const override { return token_; }

  void await_rank_0(milliseconds limit) override {
    if (options_.rank == 0) return;
    const auto until = Clock::now() + limit;
    while (Clock::now() < until && !rank_0_gone_) std::this_thread::sleep_for(milliseconds(5));
  }

 private:
  // --- meeting

  void accept_all() {
    const Listener listener = listen_on_free_port();
    token_ = random_token();
    std::vector<std::string> addresses = interface_addresses();
    if (!options_.extra_address.empty()) addresses.push_back(options_.extra_address);
    std::vector<std::string> told{token_, std::to_string(listener.port)};
    told.insert(told.end(), addresses.begin(), addresses.end());
    options_.share(pack(told));
    const auto deadline = Clock::now() + options_.timeout;
    std::vector<int> missing;
    for (int rank = 1; rank < options_.world_size; ++rank) missing.push_back(rank);
    while (!missing.empty()) {
      if (!await_readable(listener.socket.get(), deadline)) {
        throw UserError::format("{} of {} ranks did not join within {:.3g} s: {} missing",
                                missing.size(), options_.world_size,
                                static_cast<double>(options_.timeout.count()) / 1e3,
                                ranks_text(missing));
      }
      if (const int rank = greet(listener); rank > 0) std::erase(missing, rank);
    }
  }

  /// Takes one connection; the rank behind it, or 0 for a stranger.
  int greet(const Listener& listener) {
    Descriptor socket(
        accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return 0;
    FrameReader reader;
    const auto deadline = Clock::now() + std::chrono::seconds(2);
    std::optional<Frame> frame;
    while (!frame) {
      if (!await_readable(socket.get(), deadline) || !reader.read_from(socket.get())) return 0;
      frame = reader.next();
    }
    if (frame->kind != kHello) return 0;
    const std::vector<std::string> hello = unpack(frame->body);
    if (hello.size() != 2 || hello[0] != token_) return 0;
    const int rank = std::stoi(hello[1]);
    Link& link = links_.at(static_cast<std::size_t>(rank));
    link.socket = std::move(socket);
    link.reader = std::move(reader);
    link.open = true;
    return rank;
  }

  void call_rank_0() {
    std::vector<std::string> told = unpack(options_.share(""));
    SHARDBENCH_CHECK(told.size() >= 3, "rank 0 told no address");
    token_ = told[0];
    const int port = std::stoi(told[1]);
    told.erase(told.begin(), told.begin() + 2);
    links_[0].socket = connect_to(told, port, Clock::now() + options_.timeout);
    if (!links_[0].socket.valid()) {
      throw UserError::format("rank {} cannot reach rank 0 at {} port {}: is a firewall between?",
                              options_.rank, fmt::join(told, " or "), port);
    }
    links_[0].open = true;
    send(0, kHello, pack({token_, std::to_string(options_.rank)}));
  }

  // --- the thread

  void run() {
    auto next_sign = Clock::now();
    while (!stopping_) {
      std::vector<pollfd> items{{wake_.get(), POLLIN, 0}};
      std::vector<int> peers;
      for (int peer = 0; peer < options_.world_size; ++peer) {
        const Link& link = links_[static_cast<std::size_t>(peer)];
        if (!link.open) continue;
        items.push_back({link.socket.get(), POLLIN, 0});
        peers.push_back(peer);
      }
      poll(items.data(), items.size(), static_cast<int>(kSignInterval.count()));
      for (std::size_t i = 0; i < peers.size(); ++i) {
        if (items[i + 1].revents != 0) receive(peers[i]);
      }
      if (Clock::now() < next_sign) continue;
      next_sign = Clock::now() + kSignInterval;
      show_sign();
    }
  }

  void receive(int peer) {
    Link& link = links_[static_cast<std::size_t>(peer)];
    if (take(link, peer)) return;
    link.open = false;
    if (peer == 0) rank_0_gone_ = true;
    if (!link.farewell && !aborted_) lose(peer);  // once the job has ended, all just go
  }

  /// Handles what has arrived; false when the connection has ended.
  bool take(Link& link, int peer = -1) {
    const bool open = link.reader.read_from(link.socket.get());
    while (const std::optional<Frame> frame = link.reader.next()) {
      if (frame->kind == kFarewell) link.farewell = true;
      if (peer >= 0) handle(peer, *frame);
    }
    return open && !link.farewell;
  }

  void handle(int peer, const Frame& frame) {
    switch (frame.kind) {
      case kText: {
        std::vector<std::string> parts = unpack(frame.body);
        const std::lock_guard lock(mutex_);
        put_text(peer, std::stoull(parts.at(0)), std::move(parts.at(1)));
        break;
      }
      case kTexts: {
        std::vector<std::string> parts = unpack(frame.body);
        const std::lock_guard lock(mutex_);
        results_[std::stoull(parts.at(0))] = unpack(parts.at(1));
        arrived_.notify_all();
        break;
      }
      case kAbort: {
        const AbortRecord record = unpack_record(frame.body);
        if (options_.rank == 0) {
          for (int other = 1; other < options_.world_size; ++other) {
            if (other != peer) send(other, kAbort, frame.body);
          }
        }
        fail(record);
        break;
      }
      case kSign: {
        const std::vector<std::string> parts = unpack(frame.body);
        note_sign(std::stoi(parts.at(0)), unpack_sign(parts.at(1)));
        break;
      }
      default:
        break;
    }
  }

  /// A connection has ended without a farewell.
  void lose(int peer) {
    AbortRecord record = sign_of(peer).position;
    if (events_.last_seen) record = events_.last_seen(peer, record);
    record.rank = peer;
    record.reason = AbortRecord::Reason::kLost;
    record.message = fmt::format(
        "rank {} has gone without a word (killed or crashed; last seen in "
        "phase {}{}{})",
        peer, name_of(record.phase), record.unit.empty() ? "" : ", unit ", record.unit);
    if (!record.collective.empty()) record.message += fmt::format(" in {}", record.collective);
    if (options_.rank == 0) {
      const std::string body = pack_record(record);
      for (int other = 1; other < options_.world_size; ++other) send(other, kAbort, body);
    }
    fail(record);
  }

  void fail(const AbortRecord& record) {
    if (events_.abort) events_.abort(record);  // first: who waits here looks at the job then
    const std::lock_guard lock(mutex_);
    note_failure(record);
  }

  void show_sign() {
    if (!events_.sign) return;
    const Sign own = events_.sign();
    note_sign(options_.rank, own);
    if (options_.rank != 0) {
      send(0, kSign, pack({std::to_string(options_.rank), pack_sign(own)}));
      return;
    }
    // Everybody hears of everybody: any of them may have to say who is missing.
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const std::string body = pack({std::to_string(rank), pack_sign(sign_of(rank))});
      for (int peer = 1; peer < options_.world_size; ++peer) {
        if (peer != rank) send(peer, kSign, body);
      }
    }
  }

  // --- under mutex_

  void note_sign(int rank, const Sign& sign) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(rank);
    if (sign.beat != signs_[at].beat) seen_[at] = Clock::now();
    signs_[at] = sign;
  }

  void note_failure(const AbortRecord& record) {
    if (!failure_) failure_ = record;
    aborted_ = true;
    arrived_.notify_all();
  }

  void put_text(int rank, std::uint64_t number, std::string text) {
    auto& [texts, have] = texts_[number];
    texts.resize(links_.size());
    have.resize(links_.size());
    texts[static_cast<std::size_t>(rank)] = std::move(text);
    have[static_cast<std::size_t>(rank)] = 1;
    seen_[static_cast<std::size_t>(rank)] = Clock::now();
    if (std::find(have.begin(), have.end(), 0) != have.end()) return;
    const std::string body = pack({std::to_string(number), pack(texts)});
    results_[number] = std::move(texts);
    texts_.erase(number);
    for (int peer = 1; peer < options_.world_size; ++peer) send(peer, kTexts, body);
    arrived_.notify_all();
  }

  /// Ends the job when every rank that an exchange waits for has been still for the timeout.
  void fail_if_late(std::uint64_t number) {
    std::vector<int> missing;
    auto last_seen = Clock::time_point::min();
    const auto found = texts_.find(number);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank == options_.rank) continue;
      if (options_.rank == 0 && found != texts_.end() && found->second.second[at] != 0) continue;
      missing.push_back(rank);
      last_seen = std::max(last_seen, seen_[at]);
    }
    // Rank 0 knows who is missing: it speaks first.
    const milliseconds limit = options_.timeout + milliseconds(options_.rank == 0 ? 0 : 2000);
    if (missing.empty() || Clock::now() - last_seen < limit) return;
    AbortRecord record = signs_[static_cast<std::size_t>(missing.front())].position;
    record.rank = missing.front();
    record.reason = AbortRecord::Reason::kTimeout;
    record.message = fmt::format("no sign of life from {} for {:.3g} s", ranks_text(missing),
                                 static_cast<double>(options_.timeout.count()) / 1e3);
    const std::string body = pack_record(record);
    for (int peer = 0; peer < options_.world_size; ++peer) send(peer, kAbort, body);
    if (events_.abort) events_.abort(record);
    note_failure(record);
  }

  void send(int peer, Kind kind, std::string_view body) {
    Link& link = links_[static_cast<std::size_t>(peer)];
    if (!link.open) return;
    const std::lock_guard lock(link.sending);
    send_frame(link.socket.get(), kind, body, kSendLimit);  // a failure shows when reading
  }

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  Options options_;
  std::string token_;
  std::vector<Link> links_;
  ControlEvents events_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> rank_0_gone_{false};

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<AbortRecord> failure_;
  std::uint64_t exchanges_ = 0;
  /// Rank 0: what has come of each exchange that is not complete.
  std::map<std::uint64_t, std::pair<std::vector<std::string>, std::vector<char>>> texts_;
  std::map<std::uint64_t, std::vector<std::string>> results_;
  std::vector<Sign> signs_;
  std::vector<Clock::time_point> seen_;
  Descriptor wake_;
};

}  // namespace

std::unique_ptr<Control> Control::connect(const Options& options) {
  return std::make_unique<Star>(options);
}

}  // namespace shardbench::comm
