#include "tests/comm/mpi/fake_mpi.h"

#include <algorithm>
#include <cstring>

#include "common/core/error.h"

namespace shardbench::testing {
namespace {

constexpr int kTruncated = 15;
constexpr int kBroken = 16;

FakeMpi* current = nullptr;
thread_local int own_rank = 0;

// A communicator's handle holds its number among those of the rank, and the rank.
shardbench_mpi_comm make_handle(int number, int rank) {
  return static_cast<std::uint64_t>(number) << 32 | static_cast<std::uint64_t>(rank);
}
int rank_of(shardbench_mpi_comm comm) { return static_cast<int>(comm & 0xffffffffu); }
shardbench_mpi_comm of_peer(shardbench_mpi_comm comm, int peer) {
  return make_handle(static_cast<int>(comm >> 32), peer);
}

int put_text(const std::string& text, char* out, int capacity) {
  std::strncpy(out, text.c_str(), static_cast<std::size_t>(capacity) - 1);
  out[capacity - 1] = '\0';
  return 0;
}

}  // namespace

FakeMpi::FakeMpi(int world_size, Faults faults)
    : world_size_(world_size), faults_(faults), opened_(static_cast<std::size_t>(world_size)) {
  SHARDBENCH_CHECK(current == nullptr);
  current = this;
}

FakeMpi::~FakeMpi() { current = nullptr; }

FakeMpi& FakeMpi::world() { return *current; }
void FakeMpi::enter_rank(int rank) { own_rank = rank; }

const shardbench_mpi_api& FakeMpi::api() const {
  static const shardbench_mpi_api table = {.abi_version = SHARDBENCH_MPI_ABI,
                                           .implementation = "fake",
                                           .init = init,
                                           .finalize = finalize,
                                           .version = version,
                                           .error_text = error_text,
                                           .abort = abort,
                                           .comm_open = comm_open,
                                           .comm_close = comm_close,
                                           .comm_rank = comm_rank,
                                           .comm_max_tag = comm_max_tag,
                                           .send = send,
                                           .receive = receive,
                                           .test = test,
                                           .probe = probe,
                                           .drop = drop};
  return table;
}

int FakeMpi::init(int* joined, int* thread_safe) {
  *joined = world().faults_.joined ? 1 : 0;
  *thread_safe = world().faults_.thread_safe ? 1 : 0;
  return 0;
}

int FakeMpi::finalize() {
  const std::lock_guard lock(world().mutex_);
  ++world().finalized_;
  return 0;
}

int FakeMpi::version(char* out, int capacity) {
  return put_text("Fake MPI 1.0\nwith a second line", out, capacity);
}

int FakeMpi::error_text(int code, char* out, int capacity) {
  return put_text(code == kTruncated ? "message truncated" : "the network is down", out, capacity);
}

int FakeMpi::abort(int) { return 0; }

int FakeMpi::comm_open(shardbench_mpi_comm* out) {
  const std::lock_guard lock(world().mutex_);
  *out = make_handle(++world().opened_[static_cast<std::size_t>(own_rank)], own_rank);
  return 0;
}

int FakeMpi::comm_close(shardbench_mpi_comm) { return 0; }

int FakeMpi::comm_rank(shardbench_mpi_comm comm, int* rank, int* size) {
  const int seen = world().faults_.seen_size;
  *rank = seen == 0 ? rank_of(comm) : 0;
  *size = seen == 0 ? world().world_size_ : seen;
  return 0;
}

int FakeMpi::comm_max_tag(shardbench_mpi_comm, int* max_tag) {
  *max_tag = world().faults_.max_tag;
  return 0;
}

void FakeMpi::require_unused(const std::vector<shardbench_mpi_range>& ranges) const {
  if (!faults_.synchronous) return;  // nothing is being sent
  const auto overlap = [](const shardbench_mpi_range& a, const shardbench_mpi_range& b) {
    const auto* a_data = static_cast<const char*>(a.data);
    const auto* b_data = static_cast<const char*>(b.data);
    return a_data < b_data + b.bytes && b_data < a_data + a.bytes;
  };
  for (const auto& [request, state] : requests_) {
    for (const shardbench_mpi_range& lent : state.lent) {
      for (const shardbench_mpi_range& range : ranges) {
        SHARDBENCH_CHECK(!overlap(lent, range), "received into memory that is being sent");
      }
    }
  }
}

void FakeMpi::deliver(const Message& sent, const Message& asked) {
  State& receive = requests_[asked.request];
  std::size_t at = 0;
  for (const shardbench_mpi_range& range : asked.ranges) {
    const std::size_t bytes = std::min<std::size_t>(range.bytes, sent.bytes.size() - at);
    if (bytes > 0) std::memcpy(range.data, sent.bytes.data() + at, bytes);
    at += bytes;
  }
  receive.complete = true;
  receive.truncated = at < sent.bytes.size();
  receive.bytes = at;
  requests_[sent.request].complete = true;
}

int FakeMpi::send(shardbench_mpi_comm comm, int peer, int tag, const shardbench_mpi_range* ranges,
                  int count, shardbench_mpi_request* out) {
  FakeMpi& self = world();
  const std::lock_guard lock(self.mutex_);
  if (self.sends_++ == self.faults_.failing_send) return kBroken;
  self.largest_list_ = std::max(self.largest_list_, count);
  Message message{.request = self.next_request_++};
  for (int i = 0; i < count; ++i) {
    const char* data = static_cast<const char*>(ranges[i].data);
    if (ranges[i].bytes > 0) {
      message.bytes.insert(message.bytes.end(), data, data + ranges[i].bytes);
    }
  }
  *out = message.request;
  State& state = self.requests_[message.request];
  state.complete = !self.faults_.synchronous;
  state.lent = {ranges, ranges + count};
  Queues& queues = self.channels_[{of_peer(comm, peer), rank_of(comm), tag}];
  if (queues.asked.empty()) {
    queues.unexpected.push_back(std::move(message));
  } else {
    self.deliver(message, queues.asked.front());
    queues.asked.pop_front();
  }
  return 0;
}

int FakeMpi::receive(shardbench_mpi_comm comm, int peer, int tag,
                     const shardbench_mpi_range* ranges, int count, shardbench_mpi_request* out) {
  FakeMpi& self = world();
  const std::lock_guard lock(self.mutex_);
  Message message{.ranges = {ranges, ranges + count}, .request = self.next_request_++};
  *out = message.request;
  self.require_unused(message.ranges);
  self.requests_[message.request] = {};
  Queues& queues = self.channels_[{comm, peer, tag}];
  if (queues.unexpected.empty()) {
    queues.asked.push_back(std::move(message));
  } else {
    self.deliver(queues.unexpected.front(), message);
    queues.unexpected.pop_front();
  }
  return 0;
}

int FakeMpi::test(shardbench_mpi_request* request, int* complete, std::uint64_t* bytes) {
  FakeMpi& self = world();
  const std::lock_guard lock(self.mutex_);
  const auto found = self.requests_.find(*request);
  SHARDBENCH_CHECK(found != self.requests_.end(), "a request that is gone");
  const State state = found->second;
  *complete = state.complete ? 1 : 0;
  if (bytes != nullptr) *bytes = state.bytes;
  if (!state.complete) return 0;
  self.requests_.erase(found);
  return state.truncated ? kTruncated : 0;
}

int FakeMpi::probe(shardbench_mpi_comm comm, int peer, int* found, int* tag, std::uint64_t* bytes) {
  FakeMpi& self = world();
  const std::lock_guard lock(self.mutex_);
  *found = 0;
  std::uint64_t oldest = 0;  // requests are numbered in order
  for (const auto& [channel, queues] : self.channels_) {
    if (channel.comm != comm || channel.peer != peer || queues.unexpected.empty()) continue;
    const Message& first = queues.unexpected.front();
    if (*found != 0 && first.request > oldest) continue;
    *found = 1;
    oldest = first.request;
    *tag = channel.tag;
    *bytes = first.bytes.size();
  }
  return 0;
}

int FakeMpi::drop(shardbench_mpi_request* request, int) {
  FakeMpi& self = world();
  const std::lock_guard lock(self.mutex_);
  for (auto& [channel, queues] : self.channels_) {
    std::erase_if(queues.asked, [&](const Message& asked) { return asked.request == *request; });
  }
  return 0;
}

}  // namespace shardbench::testing
