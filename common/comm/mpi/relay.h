#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/mpi/neighbours.h"
#include "common/comm/mpi/staging_pool.h"

namespace shardbench::comm {

/// One call in which each part crosses the network once per host and not once per rank: between
/// hosts along the columns of the grid (see HostGrid), inside a host through shared memory. Every
/// call with the runtime's mutex held.
class Relay {
 public:
  explicit Relay(RelayGround& ground) : ground_(ground), neighbours_(ground) {}
  virtual ~Relay() = default;
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void start(const CallSpec& spec, const MessageUse& use, const MessageUse& result_use);
  /// Moves what can be moved.
  void advance(const CallSpec& spec);

  /// Whether this rank has all that it gets, and no neighbour touches its memory.
  bool has_output() const { return has_output_; }
  /// Whether besides the output may be changed.
  bool is_complete() const { return has_output_ && output_is_sent(); }
  /// Whether MPI is through with all of this rank's memory.
  bool is_released() const { return has_output_ && neighbours_.sent() && sent(); }
  /// Once released: gives back what it has borrowed.
  virtual void finish() {}
  /// Time spent in copies and sums since it was asked for last.
  std::int64_t take_moved_ns();

  /// Notes peers that have not issued the call; the others that something is still expected of.
  virtual void add_missing(std::vector<bool>& peers) { neighbours_.add_missing_offers(peers); }
  virtual void add_slow(std::vector<bool>& peers) { neighbours_.add_missing_ends(peers); }
  virtual void drop() { neighbours_.drop(); }
  /// Memory that MPI may still use after drop().
  virtual std::vector<SymmetricMemory> take_memory();

 protected:
  virtual void post(const CallSpec& spec) = 0;
  /// Whether all has been moved. Called when every neighbour's memory can be reached.
  virtual bool move(const CallSpec& spec) = 0;
  virtual void advance_sent() = 0;
  /// Whether all messages that were sent are through; those that are sent out of the output.
  virtual bool sent() const = 0;
  virtual bool output_is_sent() const { return true; }
  virtual void end_all() = 0;
  virtual void unstage(const CallSpec& spec) = 0;

  /// Offset in this rank's arena at which neighbours reach `data`: staging when it lies elsewhere.
  std::uint64_t reachable(const std::byte* data, std::size_t bytes);
  bool is_staged() const { return staging_.data() != nullptr; }
  std::byte* staging() const { return static_cast<std::byte*>(staging_.data()); }
  void count_staging(std::size_t bytes);

  RelayGround& ground_;
  Neighbours neighbours_;
  MessageUse use_;
  MessageUse result_use_;

 private:
  SymmetricMemory staging_;  ///< stands for memory that neighbours cannot reach
  bool moved_ = false;
  bool has_output_ = false;
  std::int64_t moved_ns_ = 0;
};

/// all_gather and broadcast: a shard goes to one rank of every host, and that one hands it to its
/// neighbours, straight into their memory.
class RelayedSpread : public Relay {
 public:
  explicit RelayedSpread(RelayGround& ground);

  void add_missing(std::vector<bool>& peers) override;
  void drop() override;

 protected:
  void post(const CallSpec& spec) override;
  bool move(const CallSpec& spec) override;
  bool sent() const override { return sends_.done(); }
  void advance_sent() override { sends_.advance(ground_.transport, use_); }
  void end_all() override;
  void unstage(const CallSpec& spec) override;

 private:
  /// A shard that this rank hands on.
  struct Part {
    int owner = 0;
    Messages receives;  ///< of none where it is this rank's own
  };

  void post_sends(const CallSpec& spec);
  void hand_on(const CallSpec& spec, int owner);

  std::vector<Part> parts_;     ///< the first part_count_ are in use
  std::size_t part_count_ = 0;  ///< 0: this rank only receives
  std::size_t handed_on_ = 0;
  Messages sends_;
  std::vector<ByteRange> scratch_;
};

/// all_reduce: the ranks of a host share the elements among them. Each adds up its slice of its
/// neighbours' data, on top of the sum of the hosts before, and sends it to the next host; the last
/// one's result comes back the same way. Chunk by chunk, so that all hosts work at once.
class RelayedSum : public Relay {
 public:
  RelayedSum(RelayGround& ground, StagingPool& pool) : Relay(ground), pool_(pool) {}

  void finish() override { pool_.give_back(std::move(slots_)); }
  void add_slow(std::vector<bool>& peers) override;
  void drop() override;
  std::vector<SymmetricMemory> take_memory() override;

 protected:
  void post(const CallSpec& spec) override;
  bool move(const CallSpec& spec) override;
  bool sent() const override { return forward_.done() && back_.done(); }
  bool output_is_sent() const override { return back_.done(); }
  void advance_sent() override;
  void end_all() override;
  void unstage(const CallSpec& spec) override;

 private:
  static constexpr std::int64_t kSlots = 4;

  bool is_first() const { return ground_.grid.host == 0; }
  bool is_last() const { return ground_.grid.host + 1 == ground_.grid.hosts; }
  /// This rank's peer on the host `step` further on.
  int column_peer(int step) const {
    return ground_.peer_at(ground_.grid.host + step, ground_.grid.local);
  }
  sharding::Range chunk_at(std::int64_t chunk) const;
  ByteRange bytes_of(const CallSpec& spec, std::int64_t chunk) const;
  std::byte* slot(std::int64_t chunk) const;
  bool slot_is_free(std::int64_t chunk) const;
  void ask_for_sums();
  void sum(const CallSpec& spec, std::int64_t chunk);
  void hand_on(const CallSpec& spec, std::int64_t chunk);

  StagingPool& pool_;
  sharding::Range slice_;  ///< elements
  std::int64_t chunk_elements_ = 1;
  std::int64_t chunks_ = 0;
  std::int64_t asked_ = 0;  ///< chunks whose sums so far have been asked for
  std::int64_t summed_ = 0;
  std::int64_t handed_on_ = 0;  ///< results
  std::size_t slot_bytes_ = 0;
  SymmetricMemory slots_;
  Messages sums_, forward_;  ///< from the host before, to the next one
  Messages results_, back_;  ///< from the next host, to the one before
  std::vector<PeerWindow> windows_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace shardbench::comm
