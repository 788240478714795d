#include "bench/compare/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "bench/compare/format.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kWidestTopic = 22;

/// As a shell would have it.
std::string quoted(const std::string& argument) {
  const bool plain =
      !argument.empty() && std::all_of(argument.begin(), argument.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string("-_=.,:/@+%").find(static_cast<char>(c)) != std::string::npos;
      });
  if (plain) return argument;
  std::string text = "'";
  for (char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string text_at(const json& object, const char* key) {
  if (!object.contains(key)) return "not known";
  const json& value = object.at(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string machine_text(const json& context) {
  const std::int64_t memory = context.value("memory_bytes", std::int64_t{0});
  return fmt::format(
      "{}, {} cores{}, {}", text_at(context, "cpu_model"), text_at(context, "num_cpus"),
      memory > 0 ? ", " + format_bytes(memory) : std::string(), text_at(context, "kernel"));
}

std::string versions_text(const json& context) {
  return fmt::format("shardbench {} ({:.12}), {}, LibTorch {}, {}", text_at(context, "version"),
                     text_at(context, "git_sha"), text_at(context, "build_type"),
                     text_at(context, "torch_version"), text_at(context, "compiler"));
}

std::string steps_text(const json& config) {
  const int repetitions = config.value("repetitions", 1);
  return fmt::format(
      "{} measured after {} of warm-up{}", text_at(config, "steps"), text_at(config, "warmup"),
      repetitions > 1 ? fmt::format(", {} repetitions in turns", repetitions) : std::string());
}

/// Markdown takes `*` and `_` inside words as they are, but not these.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<' || c == '*' || c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string list_of(const std::vector<Paragraph>& paragraphs) {
  std::string out;
  for (const Paragraph& paragraph : paragraphs) {
    out += fmt::format("- **{}**: {}\n", escaped(paragraph.topic), escaped(paragraph.text));
  }
  return out;
}

std::string section_markdown(const Section& section) {
  std::string out;
  if (!section.title.empty()) out += "\n## " + escaped(section.title) + "\n";
  for (const std::string& text : section.above) out += "\n" + escaped(text) + "\n";
  if (!section.table.lines().empty()) out += "\n" + to_markdown(section.table);
  for (const std::string& text : section.below) {
    if (!text.empty()) out += "\n" + escaped(text) + "\n";
  }
  return out;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string out = to_text(report.screen);
  if (!report.words.empty()) out += "\n" + to_text(report.words, 9);
  if (!report.explained.empty()) {
    std::size_t width = 0;
    for (const Paragraph& column : report.explained) {
      width = std::max(width, std::min(column.topic.size(), kWidestTopic));
    }
    out += "\n" + to_text(report.explained, width + 2);
  }
  return out;
}

std::string to_markdown(const Report& report, const json& context, const json& config) {
  std::string out = "# " + escaped(report.screen.context) + "\n\n";
  const auto item = [&](const char* name, const std::string& text) {
    out += fmt::format("- {}: {}\n", name, text);
  };
  std::vector<std::string> args;
  if (context.contains("args")) args = context.at("args").get<std::vector<std::string>>();
  item("command", "`" + command_of(args) + "`");
  item("machine", escaped(machine_text(context)));
  item("versions", escaped(versions_text(context)));
  item("date", text_at(context, "date"));
  item("data", escaped(text_at(config, "data")));
  item("steps", steps_text(config));
  for (const Section& section : report.screen.sections) out += section_markdown(section);
  if (!report.words.empty()) out += "\n" + list_of(report.words);
  if (!report.explained.empty()) out += "\n## Columns\n\n" + list_of(report.explained);
  return out;
}

std::string to_csv(const Report& report) {
  std::vector<const Table*> tables;
  for (const Section& section : report.screen.sections) {
    if (!section.extra) tables.push_back(&section.table);
  }
  return tables.empty() ? std::string() : to_csv(tables);
}

std::string command_of(const std::vector<std::string>& args,
                       const std::vector<std::string>& without) {
  std::string command = "./shardbench";
  for (std::size_t i = 1; i < args.size(); ++i) {
    const std::string& argument = args[i];
    const std::size_t equal = argument.find('=');
    const std::string flag = argument.substr(0, equal);
    if (std::find(without.begin(), without.end(), flag) != without.end()) {
      const bool takes_value = flag != "--quiet" && flag != "--explain";
      if (takes_value && equal == std::string::npos) ++i;  // it stands in the next argument
      continue;
    }
    command += ' ' + quoted(argument);
  }
  return command;
}

}  // namespace shardbench::bench
