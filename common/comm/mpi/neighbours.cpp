#include "common/comm/mpi/neighbours.h"

#include "common/core/error.h"

namespace shardbench::comm {

Neighbours::Neighbours(RelayGround& ground)
    : ground_(ground), offsets_(static_cast<std::size_t>(ground.grid.per_host)) {}

void Neighbours::begin(const MessageUse& offer, const MessageUse& end) {
  offer_ = offer;
  end_ = end;
  offer_.is_signal = end_.is_signal = true;
  offer_.staged = end_.staged = false;
  for (Messages* messages : {&offers_in_, &offers_out_, &ends_in_, &ends_out_}) messages->clear();
}

void Neighbours::offer(int neighbour, std::uint64_t offset) {
  own_offset_ = offset;
  const int peer = ground_.neighbour(neighbour);
  const ByteRange range{&own_offset_, sizeof(own_offset_)};
  const ByteRange nothing{nullptr, 0};
  offers_out_.add(ground_.transport.send(peer, offer_, {&range, 1}));
  ends_in_.add(ground_.transport.receive(peer, end_, {&nothing, 1}));
}

void Neighbours::expect_offer(int neighbour) {
  const ByteRange range{&offsets_[static_cast<std::size_t>(neighbour)], sizeof(std::uint64_t)};
  offers_in_.add(ground_.transport.receive(ground_.neighbour(neighbour), offer_, {&range, 1}));
}

void Neighbours::end(int neighbour) {
  const ByteRange nothing{nullptr, 0};
  ends_out_.add(ground_.transport.send(ground_.neighbour(neighbour), end_, {&nothing, 1}));
}

void Neighbours::advance() {
  offers_in_.advance(ground_.transport, offer_);
  offers_out_.advance(ground_.transport, offer_);
  ends_in_.advance(ground_.transport, end_);
  ends_out_.advance(ground_.transport, end_);
}

PeerWindow Neighbours::window(int neighbour, std::size_t bytes, PeerWindow::Access access) const {
  SHARDBENCH_CHECK(offered());
  return PeerWindow(*ground_.host_job, {offer_.kind, offer_.phase}, ground_.grid.local, neighbour,
                    offsets_[static_cast<std::size_t>(neighbour)], bytes, access);
}

void Neighbours::add_missing_offers(std::vector<bool>& peers) {
  offers_in_.add_missing(ground_.transport, offer_, peers);
}

void Neighbours::add_missing_ends(std::vector<bool>& peers) {
  ends_in_.add_missing(ground_.transport, end_, peers);
}

void Neighbours::drop() {
  for (Messages* messages : {&offers_in_, &offers_out_, &ends_in_, &ends_out_}) {
    messages->drop(ground_.transport);
  }
}

}  // namespace shardbench::comm
