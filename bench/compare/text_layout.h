#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/compare/table.h"

namespace shardbench::bench {

/// A line of a text table: cells, then a text that runs across the columns left over.
struct TextLine {
  std::vector<std::string> cells;
  std::string span;
};

/// Puts a table on a screen of fixed-width letters.
class TextLayout {
 public:
  explicit TextLayout(std::vector<Column> columns) : columns_(std::move(columns)) {}
  std::string render(const std::vector<TextLine>& lines) const;

 private:
  struct Group {
    std::string label;
    std::size_t begin = 0;
    std::size_t end = 0;  ///< one past its last column
  };
  std::vector<Group> groups() const;
  std::size_t gap_before(std::size_t column) const;
  /// Where the label of a group over [begin, end) starts: centred, or to the right over one column.
  static std::size_t label_begin(const Group& group, std::size_t begin, std::size_t end);
  std::vector<std::size_t> widths(const std::vector<Group>& groups,
                                  const std::vector<TextLine>& lines) const;

  std::vector<Column> columns_;
};

}  // namespace shardbench::bench
