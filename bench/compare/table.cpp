#include "bench/compare/table.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/compare/format.h"
#include "bench/compare/text_layout.h"
#include "common/core/error.h"

namespace shardbench::bench {

Cell::Cell(std::string shown) : text(std::move(shown)) {
  if (text != kDash && text != kNotMeasured) plain = text;
}

Cell Cell::of(std::string shown, double value) {
  Cell cell(std::move(shown));
  cell.number = std::isfinite(value);
  cell.plain = cell.number ? fmt::format("{:.10g}", value) : std::string();
  return cell;
}

Cell Cell::of(std::int64_t value) {
  Cell cell(fmt::format("{}", value));
  cell.number = true;
  return cell;
}

Cell Cell::named(std::string shown, std::string plain) {
  Cell cell(std::move(shown));
  cell.plain = std::move(plain);
  return cell;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  SHARDBENCH_CHECK(!columns_.empty());
}

void Table::add_row(std::vector<Cell> cells) {
  SHARDBENCH_CHECK_EQ(cells.size(), columns_.size());
  lines_.push_back({std::move(cells), ""});
}

void Table::add_span(std::vector<Cell> first_cells, std::string text) {
  SHARDBENCH_CHECK_LT(first_cells.size(), columns_.size());
  lines_.push_back({std::move(first_cells), std::move(text)});
}

std::string Table::render() const {
  std::vector<Column> columns;
  for (const Column& column : columns_) {
    if (!column.hidden) columns.push_back(column);
  }
  std::vector<TextLine> lines;
  for (const Line& line : lines_) {
    TextLine& shown = lines.emplace_back();
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      if (!columns_[i].hidden) shown.cells.push_back(line.cells[i].text);
    }
    shown.span = line.span;
  }
  return TextLayout(std::move(columns)).render(lines);
}

}  // namespace shardbench::bench
