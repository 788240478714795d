#include "common/comm/mpi/texts.h"

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

constexpr int kLengthTag = 0;
constexpr int kTextTag = 1;
constexpr std::size_t kLargestText = std::size_t{1} << 30;

}  // namespace

TextExchange::TextExchange(const MpiRuntime& runtime, shardbench_mpi_comm comm,
                           std::string_view text)
    : runtime_(runtime),
      comm_(comm),
      own_length_(text.size()),
      texts_(static_cast<std::size_t>(runtime.world_size())),
      lengths_(texts_.size()),
      has_length_(texts_.size(), false),
      receives_(texts_.size()) {
  SHARDBENCH_CHECK_LE(text.size(), kLargestText);
  std::string& own = texts_[static_cast<std::size_t>(runtime.rank())];
  own = text;
  for (int peer = 0; peer < runtime.world_size(); ++peer) {
    if (peer == runtime.rank()) continue;
    std::uint64_t& length = lengths_[static_cast<std::size_t>(peer)];
    receive(peer, kLengthTag, &length, sizeof(length));
    send(peer, kLengthTag, &own_length_, sizeof(own_length_));
    send(peer, kTextTag, own.data(), own.size());
  }
}

void TextExchange::send(int peer, int tag, void* data, std::uint64_t bytes) {
  const shardbench_mpi_range range{data, bytes};
  shardbench_mpi_request request = 0;
  runtime_.check(runtime_.api().send(comm_, peer, tag, &range, 1, &request), "sending a text");
  sends_.emplace_back(request);
}

void TextExchange::receive(int peer, int tag, void* data, std::uint64_t bytes) {
  const shardbench_mpi_range range{data, bytes};
  shardbench_mpi_request request = 0;
  runtime_.check(runtime_.api().receive(comm_, peer, tag, &range, 1, &request), "receiving a text");
  receives_[static_cast<std::size_t>(peer)] = request;
}

bool TextExchange::is_through(Request& request) {
  if (!request) return true;
  int complete = 0;
  runtime_.check(runtime_.api().test(&*request, &complete, nullptr), "exchanging texts");
  if (complete != 0) request.reset();
  return complete != 0;
}

bool TextExchange::advance() {
  bool done = true;
  for (std::size_t peer = 0; peer < receives_.size(); ++peer) {
    if (!is_through(receives_[peer])) {
      done = false;
    } else if (static_cast<int>(peer) != runtime_.rank() && !has_length_[peer]) {
      has_length_[peer] = true;
      texts_[peer].resize(lengths_[peer]);
      receive(static_cast<int>(peer), kTextTag, texts_[peer].data(), texts_[peer].size());
      done = false;
    }
  }
  for (Request& request : sends_) {
    if (!is_through(request)) done = false;
  }
  return done;
}

std::vector<int> TextExchange::missing() const {
  std::vector<int> ranks;
  for (std::size_t peer = 0; peer < receives_.size(); ++peer) {
    if (receives_[peer]) ranks.push_back(static_cast<int>(peer));
  }
  return ranks;
}

}  // namespace shardbench::comm
