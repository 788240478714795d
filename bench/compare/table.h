#pragma once

#include <string>
#include <vector>

namespace shardbench::bench {

/// One column of a table. The header has two lines: the group above, the name (or unit) below.
/// Neighbours with the same non-empty group share its label.
struct Column {
  std::string group;
  std::string name;
  bool left = false;  ///< text to the left; numbers stand to the right
};

/// A plain-text table with columns as wide as they must be: one space inside a group, two between.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns);

  /// As many cells as columns.
  void add_row(std::vector<std::string> cells);
  /// First cells in their columns, then a text that runs across all others.
  void add_span(std::vector<std::string> first_cells, std::string text);
  void add_blank();

  /// Header and rows, each with a newline, no trailing spaces.
  std::string render() const;

 private:
  struct Line {
    std::vector<std::string> cells;
    std::string span;
  };
  struct Group {
    std::string label;
    std::size_t begin = 0;
    std::size_t end = 0;  ///< one past its last column
  };
  std::vector<Group> groups() const;
  std::size_t gap_before(std::size_t column) const;
  /// Where the label of a group over [begin, end) starts: centred, or to the right over one column.
  static std::size_t label_begin(const Group& group, std::size_t begin, std::size_t end);
  std::vector<std::size_t> widths(const std::vector<Group>& groups) const;

  std::vector<Column> columns_;
  std::vector<Line> lines_;
};

}  // namespace shardbench::bench
