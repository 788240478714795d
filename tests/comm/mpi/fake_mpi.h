#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/comm/mpi/api.h"

namespace shardbench::testing {

/// MPI for ranks that are threads of this process: messages are matched as MPI does it, misuse of
/// memory is an error, and what goes wrong is chosen. One at a time. A thread that makes an
/// MpiRuntime says first which rank it is; afterwards the handles tell.
class FakeMpi {
 public:
  struct Faults {
    bool thread_safe = true;
    bool joined = false;       ///< the program has initialised MPI itself
    int seen_size = 0;         ///< processes that every rank sees; 0: all
    int max_tag = 32767;       ///< the least that MPI allows
    bool synchronous = false;  ///< a message leaves its sender when the receiver has asked for it
    int failing_send = -1;     ///< this one (counted over all ranks from 0) gives an error
  };

  FakeMpi(int world_size, Faults faults);
  explicit FakeMpi(int world_size) : FakeMpi(world_size, Faults()) {}
  ~FakeMpi();
  FakeMpi(const FakeMpi&) = delete;
  FakeMpi& operator=(const FakeMpi&) = delete;

  static void enter_rank(int rank);
  const shardbench_mpi_api& api() const;

  int finalized() const { return finalized_; }
  int largest_list() const { return largest_list_; }  ///< ranges in one message
  int messages() const { return sends_; }

 private:
  struct Message {
    std::vector<shardbench_mpi_range> ranges = {};  ///< of a receive
    std::vector<char> bytes = {};                   ///< of a send
    std::uint64_t request = 0;
  };
  struct State {
    bool complete = false;
    bool truncated = false;
    std::uint64_t bytes = 0;
    std::vector<shardbench_mpi_range> lent = {};  ///< memory of a send, until it is tested
  };
  /// Of one rank's communicator, from one peer, with one tag: what has arrived unasked and what has
  /// been asked for.
  struct Channel {
    shardbench_mpi_comm comm = 0;
    int peer = 0;
    int tag = 0;
    auto operator<=>(const Channel&) const = default;
  };
  struct Queues {
    std::deque<Message> unexpected;
    std::deque<Message> asked;
  };

  static FakeMpi& world();
  static int init(int* joined, int* thread_safe);
  static int finalize();
  static int version(char* out, int capacity);
  static int error_text(int code, char* out, int capacity);
  static int abort(int exit_code);
  static int comm_open(shardbench_mpi_comm* out);
  static int comm_close(shardbench_mpi_comm comm);
  static int comm_rank(shardbench_mpi_comm comm, int* rank, int* size);
  static int comm_max_tag(shardbench_mpi_comm comm, int* max_tag);
  static int send(shardbench_mpi_comm comm, int peer, int tag, const shardbench_mpi_range* ranges,
                  int count, shardbench_mpi_request* out);
  static int receive(shardbench_mpi_comm comm, int peer, int tag,
                     const shardbench_mpi_range* ranges, int count, shardbench_mpi_request* out);
  static int test(shardbench_mpi_request* request, int* complete, std::uint64_t* bytes);
  static int probe(shardbench_mpi_comm comm, int peer, int* found, int* tag, std::uint64_t* bytes);
  static int drop(shardbench_mpi_request* request, int is_receive);

  /// MPI forbids to receive into memory that is still being sent.
  void require_unused(const std::vector<shardbench_mpi_range>& ranges) const;
  void deliver(const Message& sent, const Message& asked);

  int world_size_;
  Faults faults_;
  std::mutex mutex_;
  std::map<Channel, Queues> channels_;
  std::unordered_map<std::uint64_t, State> requests_;
  std::vector<int> opened_;  ///< communicators so far, by rank
  std::uint64_t next_request_ = 1;
  int sends_ = 0;
  int finalized_ = 0;
  int largest_list_ = 0;
};

}  // namespace shardbench::testing
