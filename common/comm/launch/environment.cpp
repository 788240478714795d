#include "common/comm/launch/environment.h"

#include <charconv>
#include <cstdlib>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

int whole_number(const char* name, const std::string& text, int least, int most) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    throw UserError::format("environment variable {} is '{}': it must be a whole number, {} to {}",
                            name, text, least, most);
  }
  return value;
}

LaunchEnvironment torchrun_environment(const ReadVariable& read) {
  const auto need = [&](const char* name) {
    const auto text = read(name);
    if (!text || text->empty()) {
      throw UserError::format(
          "RANK is set but {} is not: start through torchrun or mpirun, set RANK, WORLD_SIZE, "
          "MASTER_ADDR and MASTER_PORT together, or unset RANK",
          name);
    }
    return *text;
  };
  constexpr int kMost = 1 << 20;
  LaunchEnvironment found;
  found.launcher = Launcher::kTorchrun;
  found.world_size = whole_number("WORLD_SIZE", need("WORLD_SIZE"), 1, kMost);
  found.rank = whole_number("RANK", need("RANK"), 0, found.world_size - 1);
  found.master_address = need("MASTER_ADDR");
  found.master_port = whole_number("MASTER_PORT", need("MASTER_PORT"), 1, 65535);
  found.store_is_served = read("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  found.run = read("TORCHELASTIC_RUN_ID").value_or("none") + "/" +
              read("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return found;
}

}  // namespace

std::optional<std::string> read_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return text;
}

LaunchEnvironment detect_launcher(const ReadVariable& read) {
  if (read("RANK") && (read("WORLD_SIZE") || read("MASTER_ADDR"))) {
    return torchrun_environment(read);
  }
  LaunchEnvironment found;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (read(name)) found.launcher = Launcher::kMpi;
  }
  return found;
}

}  // namespace shardbench::comm
