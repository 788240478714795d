#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "bench/compare/table.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kStatusKey = "status";

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (char c : trimmed(text)) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

/// "step ms", "peak (MiB)", "memory, MiB: states".
std::string markdown_header(const Column& column) {
  if (column.group.empty()) return column.name;
  if (column.name.empty()) return column.group;
  const bool unit_below = column.name.front() == '(';
  return column.group + (unit_below ? " " : ": ") + column.name;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string csv_cell(const Cell& cell) {
  if (cell.plain.empty() || cell.number) return cell.plain;
  return quoted(cell.plain);
}

std::vector<std::string> keys_of(const Table& table) {
  std::vector<std::string> keys;
  for (const Column& column : table.columns()) keys.push_back(key_of(column));
  return keys;
}

std::string joined(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + cells[i];
  return line + '\n';
}

std::string csv_line(const std::vector<std::string>& keys, const Table::Line& line) {
  std::vector<std::string> cells(keys.size());
  for (std::size_t i = 0; i < line.cells.size(); ++i) cells[i] = csv_cell(line.cells[i]);
  if (!line.span.empty()) {
    const auto status = std::find(keys.begin(), keys.end(), kStatusKey);
    const auto place = status == keys.end()
                           ? line.cells.size()
                           : static_cast<std::size_t>(std::distance(keys.begin(), status));
    cells[place] = quoted(line.span);
  }
  return joined(cells);
}

}  // namespace

std::string key_of(const Column& column) {
  if (!column.key.empty()) return column.key;
  std::string key;
  for (char c : column.group + " " + column.name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      key += static_cast<char>(std::tolower(letter));
    } else if (c == '%') {
      key += "percent";
    } else if (!key.empty() && key.back() != '_') {
      key += '_';
    }
  }
  while (!key.empty() && key.back() == '_') key.pop_back();
  return key;
}

std::string to_markdown(const Table& table) {
  std::string header = "|";
  std::string rule = "|";
  std::size_t shown = 0;
  for (const Column& column : table.columns()) {
    if (column.hidden) continue;
    ++shown;
    header += " " + markdown_cell(markdown_header(column)) + " |";
    rule += column.left ? "---|" : "---:|";
  }
  std::string out = header + '\n' + rule + '\n';
  for (const Table::Line& line : table.lines()) {
    std::string text = "|";
    std::size_t cells = 0;
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      if (table.columns()[i].hidden) continue;
      text += " " + markdown_cell(line.cells[i].text) + " |";
      ++cells;
    }
    if (!line.span.empty()) {
      text += " " + markdown_cell(line.span) + " |";
      ++cells;
    }
    for (; cells < shown; ++cells) text += " |";
    out += text + '\n';
  }
  return out;
}

std::string to_csv(const std::vector<const Table*>& tables) {
  SHARDBENCH_CHECK(!tables.empty());
  const std::vector<std::string> keys = keys_of(*tables.front());
  std::string out = joined(keys);
  for (const Table* table : tables) {
    SHARDBENCH_CHECK(keys_of(*table) == keys, "tables of one csv must have the same columns");
    for (const Table::Line& line : table->lines()) out += csv_line(keys, line);
  }
  return out;
}

json to_json(const Table& table) {
  const std::vector<std::string> keys = keys_of(table);
  json rows = json::array();
  for (const Table::Line& line : table.lines()) {
    json row = json::object();
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      const Cell& cell = line.cells[i];
      if (cell.plain.empty()) continue;
      row[keys[i]] = cell.number ? json::parse(cell.plain) : json(cell.plain);
    }
    if (!line.span.empty()) row[kStatusKey] = line.span;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace shardbench::bench
