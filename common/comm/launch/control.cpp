#include "common/comm/launch/control.h"

#include <poll.h>
#include <sys/eventfd.h>
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
#include "common/comm/launch/meeting.h"

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSignInterval{250};
constexpr milliseconds kSendLimit{10'000};

enum Kind : char {
  kText = 't',     // number of the exchange, text
  kTexts = 'T',    // number of the exchange, all texts
  kAbort = 'a',    // record
  kSign = 's',     // rank, sign
  kFarewell = 'f'  // nothing
};

/// One end of a connection between rank 0 and another rank.
struct Link {
  Connection connection;
  std::mutex sending;
  std::atomic<bool> farewell{false};
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
    Meeting meeting = meet(options_);
    token_ = std::move(meeting.token);
    for (std::size_t peer = 0; peer < links_.size(); ++peer) {
      links_[peer].connection = std::move(meeting.connections[peer]);
      links_[peer].open = links_[peer].connection.socket.valid();
    }
  }

  ~Star() override {
    stopping_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
    tell_others(kFarewell, "");
    // Closing before the others have said farewell would be their lost rank 0.
    const auto until = Clock::now() + kSendLimit;
    for (Link& link : links_) {
      while (link.open && !aborted_ && Clock::now() < until) {
        if (!await_readable(link.connection.socket.get(), until) || !take(link)) link.open = false;
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
      tell_others(kAbort, pack_record(record));
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
  // --- the thread

  void run() {
    auto next_sign = Clock::now();
    while (!stopping_) {
      std::vector<pollfd> items{{wake_.get(), POLLIN, 0}};
      std::vector<int> peers;
      for (int peer = 0; peer < options_.world_size; ++peer) {
        const Link& link = links_[static_cast<std::size_t>(peer)];
        if (!link.open) continue;
        items.push_back({link.connection.socket.get(), POLLIN, 0});
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
    const bool open = link.connection.reader.read_from(link.connection.socket.get());
    while (const std::optional<Frame> frame = link.connection.reader.next()) {
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
        if (options_.rank == 0) tell_others(kAbort, frame.body, peer);
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
    tell_others(kAbort, pack_record(record));
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
      tell_others(kSign, pack({std::to_string(rank), pack_sign(sign_of(rank))}), rank);
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
    tell_others(kTexts, body);
    arrived_.notify_all();
  }

  /// Ends the job when a rank that an exchange waits for has left, or all of them have been still
  /// for the timeout.
  void fail_if_late(std::uint64_t number) {
    std::vector<int> missing;
    std::vector<int> left;
    auto last_seen = Clock::time_point::min();
    const auto found = texts_.find(number);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank == options_.rank) continue;
      if (options_.rank == 0 && found != texts_.end() && found->second.second[at] != 0) continue;
      missing.push_back(rank);
      if (links_[at].farewell) left.push_back(rank);
      last_seen = std::max(last_seen, seen_[at]);
    }
    // Rank 0 knows who is missing: it speaks first.
    const milliseconds limit = options_.timeout + milliseconds(options_.rank == 0 ? 0 : 2000);
    if (left.empty() && (missing.empty() || Clock::now() - last_seen < limit)) return;
    const int first = left.empty() ? missing.front() : left.front();
    AbortRecord record = signs_[static_cast<std::size_t>(first)].position;
    record.rank = first;
    record.reason = left.empty() ? AbortRecord::Reason::kTimeout : AbortRecord::Reason::kLost;
    record.message = left.empty()
                         ? fmt::format("no sign of life from {} for {:.3g} s", ranks_text(missing),
                                       static_cast<double>(options_.timeout.count()) / 1e3)
                         : fmt::format("{} left the job before its end", ranks_text(left));
    tell_others(kAbort, pack_record(record));
    if (events_.abort) events_.abort(record);
    note_failure(record);
  }

  /// Every rank there is a connection to, but `except`.
  void tell_others(Kind kind, std::string_view body, int except = -1) {
    for (int peer = 0; peer < options_.world_size; ++peer) {
      if (peer != except) send(peer, kind, body);
    }
  }

  void send(int peer, Kind kind, std::string_view body) {
    Link& link = links_[static_cast<std::size_t>(peer)];
    if (!link.open) return;
    const std::lock_guard lock(link.sending);
    send_frame(link.connection.socket.get(), kind, body,
               kSendLimit);  // a failure shows when reading
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
