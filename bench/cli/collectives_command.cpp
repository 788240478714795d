#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/screen.h"
#include "bench/collectives/report.h"
#include "bench/compare/document.h"
#include "bench/compare/output_file.h"
#include "bench/peers/collectives.h"
#include "common/core/error.h"
#include "common/core/machine_info.h"

namespace shardbench::cli {
namespace {

constexpr int kMostRanks = 64;

struct CollectivesFlags {
  bench::CollectivesRequest request;
  std::optional<std::int64_t> max_bytes;  ///< the request's default, or -b where that is larger
  SimdWidth simd = simd_widths().back();
  std::string format = "table";
  std::string out;
  std::map<std::string, std::string> context;
  std::vector<std::string> peers;
  bool quiet = false;
};

/// With peers: how often all of them measure all rows.
constexpr int kRounds = 2;

bench::CollectivesRequest request_of(const CollectivesFlags& flags) {
  bench::CollectivesRequest request = flags.request;
  request.max_bytes = flags.max_bytes.value_or(std::max(request.max_bytes, request.min_bytes));
  return request;
}

/// `results`: collectives_json or peers_json.
nlohmann::ordered_json document_of(const bench::CollectivesReport& report,
                                   const nlohmann::ordered_json& results,
                                   const CollectivesFlags& flags, const Program& program) {
  bench::Request request;  // what the context says of machine and program
  request.worlds = {report.request.world_size};
  request.base.link = report.request.link;
  request.base.backend = report.backend;
  nlohmann::ordered_json context = bench::context_json(
      request, {program.args, flags.context, program.executable, program.torch_version});
  for (const char* key : {"seed", "deterministic"}) context.erase(key);
  nlohmann::ordered_json document = {{"schema_version", 1}, {"context", std::move(context)}};
  document.update(results);
  return document;
}

void warn_about_cores(const bench::CollectivesRequest& request) {
  const int cores = machine_info().num_cpus;
  if (cores == 0 || request.world_size <= cores) return;
  say(fmt::format("warning: {} ranks on {} cores: ranks take turns, so times mean little\n",
                  request.world_size, cores));
}

/// What goes to stdout and into the file; the exit code.
struct Shown {
  std::string json;
  std::string text;
  bench::Table table;
  int code = kExitDone;
  bool has_table = true;
};

int show(const Shown& shown, const CollectivesFlags& flags,
         const std::optional<bench::OutputFile>& file) {
  const bool kept = !file || write_results(*file, shown.json);
  if (flags.format == "json") {
    fmt::print("{}", shown.json);
  } else if (shown.has_table) {
    fmt::print("{}", flags.format == "table" ? shown.text
                     : flags.format == "csv" ? bench::to_csv({&shown.table})
                                             : bench::to_markdown(shown.table));
  }
  return kept ? shown.code : std::max(shown.code, kExitWrong);
}

/// Says on stderr what went wrong with ours.
void print_failures(const bench::CollectivesReport& report, const Program& program) {
  if (report.failure) {
    say_failure(program, fmt::format("shardbench: {}\n", report.failure->message));
  }
  if (report.wrong() > 0) say(fmt::format("shardbench: {} elements are wrong\n", report.wrong()));
}

int beside_peers(const CollectivesFlags& flags, const bench::CollectivesRequest& request,
                 const std::optional<bench::OutputFile>& file, const Program& program) {
  ProgressLine progress(!flags.quiet);
  int runs = 0;
  const int all = kRounds * (1 + static_cast<int>(flags.peers.size()));
  const bench::PeersReport report = bench::run_beside_peers(
      *program.ranks, request, flags.peers, bench::find_peer_tools(program.executable),
      program.executable, kRounds,
      [&](const std::string& what) { progress.begin(what, ++runs, all); });
  progress.clear();
  print_failures(report.ours, program);
  for (const bench::CollectivePeer& peer : report.peers) {
    if (peer.failure) say(fmt::format("shardbench: {}: {}\n", peer.name, peer.failure->message));
  }
  return show({text_of(document_of(report.ours, bench::peers_json(report), flags, program)),
               bench::peers_text(report), bench::peers_table(report), report.exit_code(),
               !report.ours.failure},
              flags, file);
}

/// Throws UserError for what cannot be done beside peers.
void check_peers(const CollectivesFlags& flags, const bench::CollectivesRequest& request,
                 const Program& program) {
  if (flags.peers.empty()) return;
  bench::refuse_unknown_to_peers(request);
  if (program.ranks->launched_world_size() > 0) {
    throw UserError("--peers: peers start their own ranks; run it without mpirun or torchrun");
  }
}

int collectives_command(const CollectivesFlags& flags, const Program& program) {
  use_simd_width(flags.simd);
  const bench::CollectivesRequest request = request_of(flags);
  const std::size_t rows = bench::plan_cases(request).size();
  bench::require_memory(request, bench::available_memory());
  check_peers(flags, request, program);
  std::optional<bench::OutputFile> file;
  if (!flags.out.empty() && program.speaks()) file.emplace(flags.out);
  if (!flags.quiet) warn_about_cores(request);

  if (!flags.peers.empty()) return beside_peers(flags, request, file, program);
  ProgressLine progress(!flags.quiet);
  progress.begin("collectives", 1, 1);
  const bench::CollectivesReport report = bench::run_collectives(
      *program.ranks, request,
      [&](std::int64_t done) { progress.step(static_cast<int>(done), static_cast<int>(rows)); });
  progress.clear();

  print_failures(report, program);
  return show({text_of(document_of(report, bench::collectives_json(report), flags, program)),
               bench::collectives_text(report), bench::collectives_table(report),
               report.exit_code(), !report.failure},
              flags, file);
}

template <typename Item, typename Parse>
std::vector<Item> parse_items(const std::string& flag, const std::string& text, Parse parse) {
  std::vector<Item> items;
  for (const std::string& item : parse_list(flag, text)) items.push_back(parse(flag, item));
  return items;
}

void add_what(CLI::App& app, CollectivesFlags& flags) {
  const std::string group = "What is measured";
  bench::CollectivesRequest& request = flags.request;
  add_value(app, "--kinds", "A,B,..", "all_reduce, all_gather, reduce_scatter, broadcast, reduce",
            [&](const std::string& text) {
              request.kinds = parse_items<comm::CollectiveKind>("--kinds", text, bench::parse_kind);
            })
      ->default_str("all")
      ->group(group);
  add_value(app, "-b,--minbytes", "SIZE", "smallest payload: bytes, or with K, M, G",
            [&](const std::string& text) { request.min_bytes = bench::parse_bytes("-b", text); })
      ->default_str("8")
      ->group(group);
  add_value(app, "-e,--maxbytes", "SIZE", "largest payload",
            [&](const std::string& text) { flags.max_bytes = bench::parse_bytes("-e", text); })
      ->default_str("64M")
      ->group(group);
  add_count(app, "-f,--stepfactor", 1, 1 << 20, "each size is the one before times this",
            [&](std::int64_t n) { request.factor = static_cast<int>(n); })
      ->default_str("8")
      ->group(group);
  add_value(app, "-i,--stepbytes", "SIZE", "each size is the one before plus this, instead of -f",
            [&](const std::string& text) { request.step_bytes = bench::parse_bytes("-i", text); })
      ->group(group);
  add_value(app, "-d,--datatype", "TYPE,..", "fp32, fp64, bf16, fp16, int64",
            [&](const std::string& text) {
              request.dtypes = parse_items<DType>("-d", text, bench::parse_dtype);
            })
      ->default_str("fp32")
      ->group(group);
  add_value(app, "-o,--op,--ops", "OP,..", "sum, avg, max",
            [&](const std::string& text) {
              request.ops = parse_items<comm::ReduceOp>("-o", text, bench::parse_redop);
            })
      ->default_str("sum")
      ->group(group);
  add_count(app, "--root", 0, kMostRanks - 1, "of broadcast and reduce",
            [&](std::int64_t n) { request.root = static_cast<int>(n); })
      ->default_str("0")
      ->group(group);
}

void add_peers(CLI::App& app, CollectivesFlags& flags) {
  add_value(
      app, "--peers", "A,B", "the same rows in other libraries, in turns: gloo, mpi",
      [&](const std::string& text) {
        flags.peers.clear();
        for (const std::string& name : parse_list("--peers", text)) {
          flags.peers.push_back(parse_choice("--peers", name, bench::collective_peer_names()));
        }
      })
      ->group("What is measured");
}

void add_how(CLI::App& app, CollectivesFlags& flags, const Program& program) {
  const std::string group = "Running";
  bench::CollectivesRequest& request = flags.request;
  request.world_size = program.default_world_size();
  add_count(app, "--world,--nproc", 1, kMostRanks, "ranks",
            [&](std::int64_t n) { request.world_size = static_cast<int>(n); })
      ->default_str(fmt::format("{}", request.world_size))
      ->group(group);
  add_count(app, "-n,--iters", 1, 1'000'000, "measured calls per row",
            [&](std::int64_t n) { request.iterations = static_cast<int>(n); })
      ->default_str("20")
      ->group(group);
  add_count(app, "-w,--warmup_iters,--warmup", 0, 1'000'000, "calls before them",
            [&](std::int64_t n) { request.warmup = static_cast<int>(n); })
      ->default_str("5")
      ->group(group);
  add_count(app, "-c,--check", 0, 1000, "checked calls per row; 0: none",
            [&](std::int64_t n) { request.checks = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_value(
      app, "--memory", "KIND", "symmetric (peers reach it) or plain (goes through staging)",
      [&](const std::string& text) {
        request.symmetric = parse_choice("--memory", text, {"symmetric", "plain"}) == "symmetric";
      })
      ->default_str("symmetric")
      ->group(group);
  add_value(app, "--backend", "NAME", kBackendHelp,
            [&](const std::string& text) { request.backend = parse_backend(text); })
      ->default_str("auto")
      ->group(group);
  add_value(app, "--link", "RATE,LATENCY", "emulate a network, such as 1Gbit,20us",
            [&](const std::string& text) {
              try {
                request.link = comm::LinkModel::parse(text);
              } catch (const UserError& error) {
                const std::string what = error.what();
                throw UserError(what.rfind("--", 0) == 0 ? what : "--link: " + what);
              }
            })
      ->group(group);
  add_value(app, "--simd", "auto|portable|avx2|avx512", kSimdHelp,
            [&](const std::string& text) { flags.simd = parse_simd(text); })
      ->default_str("auto")
      ->group(group);
  add_value(app, "--timeout", "S", "seconds after which a rank that waits gives up",
            [&](const std::string& text) {
              const double seconds = parse_real("--timeout", text, 0.001, 1e6);
              request.timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
            })
      ->default_str("300")
      ->group(group);
  add_value(app, "--inject", "KIND@RANK,ROW",
            "plant a fault: wrong (one element), kill or stall, such as wrong@1,3",
            [&](const std::string& text) { request.fault = bench::CollectivesFault::parse(text); })
      ->group(group);
}

void add_output(CLI::App& app, CollectivesFlags& flags) {
  const std::string group = "Output";
  add_value(app, "--format", "table|json|csv|md", "what goes to stdout",
            [&](const std::string& text) {
              flags.format = parse_choice("--format", text, {"table", "json", "csv", "md"});
            })
      ->default_str("table")
      ->group(group);
  add_value(app, "--out", "FILE", "write the results there, as JSON", [&](const std::string& text) {
    if (text.empty()) throw UserError("--out: give the name of a file");
    flags.out = text;
  })->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--context",
         [&](const std::vector<std::string>& texts) {
           for (const std::string& text : texts)
             add_note(flags.context, bench::own_context_keys(), text);
         },
         "a note for the result file (repeatable)")
      ->type_name("K=V")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  add_switch(app, "--quiet", "no progress or warnings on stderr", &flags.quiet)->group(group);
}

}  // namespace

void add_collectives(CLI::App& app, const Program& program, Command& chosen) {
  CLI::App* command = app.add_subcommand(
      "collectives", "bandwidth of each collective, with the columns and flags of nccl-tests");
  const auto flags = std::make_shared<CollectivesFlags>();
  add_what(*command, *flags);
  add_peers(*command, *flags);
  add_how(*command, *flags, program);
  add_output(*command, *flags);
  command->callback([&chosen, &program, flags] {
    chosen = [&program, flags] { return collectives_command(*flags, program); };
  });
}

}  // namespace shardbench::cli
