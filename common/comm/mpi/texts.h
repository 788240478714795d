#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/mpi/runtime.h"

namespace shardbench::comm {

/// One all-gather of texts: each peer's length, then its text. Must live until it is done. Every
/// call with the runtime's mutex held.
class TextExchange {
 public:
  TextExchange(const MpiRuntime& runtime, shardbench_mpi_comm comm, std::string_view text);

  /// Tests what is under way. True when all texts are there and this one has left.
  bool advance();
  /// Ranks whose texts have not come.
  std::vector<int> missing() const;
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  using Request = std::optional<shardbench_mpi_request>;
  void send(int peer, int tag, void* data, std::uint64_t bytes);
  void receive(int peer, int tag, void* data, std::uint64_t bytes);
  bool is_through(Request& request);

  const MpiRuntime& runtime_;
  shardbench_mpi_comm comm_;
  std::uint64_t own_length_;
  std::vector<std::string> texts_;
  std::vector<std::uint64_t> lengths_;
  std::vector<bool> has_length_;
  std::vector<Request> receives_;  ///< by rank
  std::vector<Request> sends_;
};

}  // namespace shardbench::comm
