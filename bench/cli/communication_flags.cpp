#include "bench/cli/flags.h"
#include "bench/cli/parse.h"

namespace shardbench::cli {

void add_communication_flags(CLI::App& app, Flags& flags) {
  const std::string group = "How strategies work";
  add_value(app, "--device", "cpu|cuda",
            "where ranks compute: cuda needs --backend nccl and a GPU for every rank",
            [&](const std::string& text) {
              const bool cuda = parse_choice("--device", text, {"cpu", "cuda"}) == "cuda";
              flags.device = cuda ? train::DeviceKind::kCuda : train::DeviceKind::kCpu;
            })
      ->default_str("cpu")
      ->group(group);
  add_value(
      app, "--collectives", "HOW",
      "direct (peers copy from each other's memory), staged (all through buffers) or in-place "
      "(zero3 and fsdp read weights where their owners keep them: no gathers, one host)",
      [&](const std::string& text) { flags.options.collectives = train::parse_collectives(text); })
      ->default_str("direct")
      ->group(group);
  add_switch(app, "--sparse-embedding",
             "gradients of an untied token embedding travel as token ids and rows, not whole",
             &flags.options.sparse_embedding)
      ->group(group);
  add_value(app, "--link-inter", "RATE,LATENCY",
            "with --link and --ranks-per-host: the ports of whole hosts, which every byte between "
            "them crosses once",
            [&](const std::string& text) { flags.link_inter = comm::LinkSpeed::parse(text); })
      ->group(group);
  add_count(app, "--ranks-per-host", 1, 1024, "of the emulated hosts (--link-inter)",
            [&](std::int64_t n) { flags.ranks_per_host = static_cast<int>(n); })
      ->group(group);
  add_switch(app, "--comm-thread",
             "a thread per rank carries its communication while the rank computes",
             &flags.comm_thread)
      ->group(group);
}

}  // namespace shardbench::cli
