#pragma once

#include <nlohmann/json_fwd.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardbench::bench {

/// One column of a table. The header has two lines: the group above, the name (or unit) below.
/// Neighbours with the same non-empty group share its label.
struct Column {
  std::string group;
  std::string name;
  bool left = false;  ///< text to the left; numbers stand to the right
  /// Name for machines, unit included: "peak_mib". Empty: made from group and name.
  std::string key = {};
  bool hidden = false;  ///< in csv and JSON only
};

/// One cell: the text for people, and the value for spreadsheets and scripts. A dash ("does not
/// apply") and "n/m" ("not measured") have no value.
struct Cell {
  std::string text;
  std::string plain;
  bool number = false;

  Cell() = default;
  Cell(std::string shown);  // NOLINT: cells are written as plain texts
  Cell(const char* shown) : Cell(std::string(shown)) {}
  /// A number, shown as `shown` and kept with ten figures. Not finite: no value.
  static Cell of(std::string shown, double value);
  static Cell of(std::int64_t value);
  /// A text that machines read otherwise.
  static Cell named(std::string shown, std::string plain);
};

/// A table: columns and cells once, for every form of output. As text its columns are as wide as
/// they must be: one space inside a group, two between.
class Table {
 public:
  struct Line {
    std::vector<Cell> cells;
    std::string span;
  };

  explicit Table(std::vector<Column> columns);

  /// As many cells as columns.
  void add_row(std::vector<Cell> cells);
  template <std::same_as<std::vector<std::string>> Texts>
  void add_row(Texts texts) {
    add_row(std::vector<Cell>(texts.begin(), texts.end()));
  }
  /// First cells in their columns, then a text that runs across all others.
  void add_span(std::vector<Cell> first_cells, std::string text);

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Line>& lines() const { return lines_; }

  /// Header and rows, each with a newline, no trailing spaces. Hidden columns are left out.
  std::string render() const;

 private:
  std::vector<Column> columns_;
  std::vector<Line> lines_;
};

/// A Markdown table: one header line ("memory, MiB: peak"), numbers to the right. Hidden columns
/// are left out.
std::string to_markdown(const Table& table);

/// Comma-separated values (RFC 4180, lines end in \n): one header of keys, then the rows of all
/// tables, which must have the same columns. Texts stand in quotes, numbers do not; a cell without
/// a value is empty. What a span says stands in the column "status", the cells it covers are empty.
std::string to_csv(const std::vector<const Table*>& tables);

/// One object per row, by key; a cell without a value is left out.
nlohmann::ordered_json to_json(const Table& table);

/// The key of a column.
std::string key_of(const Column& column);

}  // namespace shardbench::bench
