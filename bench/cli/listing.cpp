// What there is to choose from: `--list`.

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cli/screen.h"
#include "bench/compare/peer.h"
#include "bench/compare/screens.h"
#include "bench/compare/table.h"
#include "common/core/format.h"
#include "common/models/config.h"
#include "common/models/model_file.h"

namespace shardbench::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, const char*>, 5> kUnits = {{
    {"block", "one transformer block each, the rest is the root unit"},
    {"tensor", "every parameter by itself"},
    {"whole", "all in one"},
    {"size:N", "modules of at least N elements (10k, 2M)"},
    {"class:NAME", "modules of this class, such as class:TransformerBlock"},
}};

std::string peer_text(const bench::PeerKind& kind) {
  return fmt::format("{}, under our {}", kind.title, kind.counterpart);
}

std::string sizes_of(const models::ModelConfig& model) {
  return fmt::format("{} layers, width {}, vocabulary {}, context {}", model.layers, model.hidden,
                     model.vocab, model.context);
}

json list_json(const Program& program) {
  json models = json::array();
  for (const std::string& name : models::preset_names()) {
    const models::ModelConfig model = models::preset(name);
    json entry = models::model_json(model);
    entry["params"] = models::shape_of(model).parameter_count();
    models.push_back(std::move(entry));
  }
  json strategies = json::array();
  for (const train::StrategyEntry& entry : program.registry.entries()) {
    strategies.push_back({{"name", entry.name}, {"summary", entry.summary}});
  }
  json peers = json::array();
  for (const bench::PeerKind& kind : bench::peer_kinds()) {
    peers.push_back({{"name", kind.name},
                     {"framework", kind.framework},
                     {"title", kind.title},
                     {"counterpart", kind.counterpart}});
  }
  json units = json::array();
  for (const auto& [name, what] : kUnits) units.push_back({{"name", name}, {"summary", what}});
  return {{"models", std::move(models)},
          {"strategies", std::move(strategies)},
          {"units", std::move(units)},
          {"peers", std::move(peers)},
          {"tables", bench::table_names()}};
}

/// All of it in one table, for csv and Markdown.
bench::Table list_table(const Program& program) {
  using bench::Cell;
  bench::Table table({{"", "flag", true, "flag"},
                      {"", "name", true, "name"},
                      {"", "parameters", false, "parameters"},
                      {"", "what it is", true, "summary"}});
  for (const std::string& name : models::preset_names()) {
    const models::ModelConfig model = models::preset(name);
    table.add_row(
        {"--model", name, Cell::of(models::shape_of(model).parameter_count()), sizes_of(model)});
  }
  for (const train::StrategyEntry& entry : program.registry.entries()) {
    table.add_row({"--strategy", entry.name, "", entry.summary});
  }
  for (const auto& [name, what] : kUnits) table.add_row({"--units", name, "", what});
  for (const bench::PeerKind& kind : bench::peer_kinds()) {
    table.add_row({"--peers", kind.name, "", peer_text(kind)});
  }
  for (const std::string& name : bench::table_names()) table.add_row({"--table", name, "", ""});
  return table;
}

void print_text(const Program& program) {
  fmt::print("Models (--model)\n");
  for (const std::string& name : models::preset_names()) {
    const models::ModelConfig model = models::preset(name);
    fmt::print("  {:<12} {:>15} parameters: {}\n", name,
               format_count(models::shape_of(model).parameter_count()), sizes_of(model));
  }
  fmt::print("Strategies (--strategy)\n");
  for (const train::StrategyEntry& entry : program.registry.entries()) {
    fmt::print("  {:<12} {}\n", entry.name, entry.summary);
  }
  fmt::print("Units (--units)\n");
  for (const auto& [name, what] : kUnits) fmt::print("  {:<12} {}\n", name, what);
  fmt::print("Peers (--peers; torch and deepspeed stand for all of theirs)\n");
  for (const bench::PeerKind& kind : bench::peer_kinds()) {
    fmt::print("  {:<14} {}\n", kind.name, peer_text(kind));
  }
  fmt::print("Tables of compare (--table)\n  {}\n", join(bench::table_names(), " "));
}

}  // namespace

void print_list(const Program& program, const std::string& format) {
  if (format == "json") {
    fmt::print("{}", text_of(list_json(program)));
  } else if (format == "csv") {
    const bench::Table table = list_table(program);
    fmt::print("{}", bench::to_csv({&table}));
  } else if (format == "md") {
    fmt::print("{}", bench::to_markdown(list_table(program)));
  } else {
    print_text(program);
  }
}

}  // namespace shardbench::cli
