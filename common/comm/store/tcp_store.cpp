#include "common/comm/store/tcp_store.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <memory>
#include <string>
#include <vector>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

/// The first line of what c10d says.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::shared_ptr<c10d::TCPStore> connect(const LaunchEnvironment& found,
                                        std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(found.master_port);
  options.isServer = !found.store_is_served && found.rank == 0;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return std::make_shared<c10d::TCPStore>(found.master_address, options);
  } catch (const std::exception& error) {
    throw UserError::format("rank {} cannot {} the store at MASTER_ADDR:MASTER_PORT {}:{} ({}): {}",
                            found.rank, options.isServer ? "serve" : "reach", found.master_address,
                            found.master_port, first_line(error),
                            options.isServer ? "is the port busy? choose another MASTER_PORT"
                                             : "is the address right, and has its rank 0 started?");
  }
}

}  // namespace

ShareText open_tcp_store(const LaunchEnvironment& found, std::chrono::milliseconds timeout) {
  const std::shared_ptr<c10d::TCPStore> store = connect(found, timeout);
  const std::string key = "shardbench/" + found.run;
  return [store, key, rank = found.rank, timeout](std::string_view from_rank_0) {
    if (rank == 0) {
      store->set(key, std::vector<std::uint8_t>(from_rank_0.begin(), from_rank_0.end()));
      return std::string(from_rank_0);
    }
    try {
      store->wait({key}, timeout);
      const std::vector<std::uint8_t> value = store->get(key);
      return std::string(value.begin(), value.end());
    } catch (const std::exception&) {
      throw UserError::format("rank 0 did not join within {:.3g} s (rank {} waited)",
                              static_cast<double>(timeout.count()) / 1e3, rank);
    }
  };
}

}  // namespace shardbench::comm
