#include "bench/compare/row_table.h"

#include <fmt/format.h>

namespace shardbench::bench {
namespace {

bool is_text(Axis axis) { return axis == Axis::kUnits || axis == Axis::kLink; }

std::vector<Column> all_columns(const Comparison& comparison, RowTable::Keys keys,
                                std::vector<Column> columns) {
  using Keys = RowTable::Keys;
  const bool shown = keys == Keys::kAll || keys == Keys::kAllLeft;
  std::vector<Column> all;
  all.push_back({"", "name", true, "name", true});
  all.push_back({"", "strategy", true, "strategy", keys == Keys::kNone});
  all.push_back({"", "W", keys == Keys::kAllLeft, "world_size", !shown});
  for (Axis axis : kAxes) {
    const std::string key = axis == Axis::kBucketCap ? "bucket_cap_mib" : axis_name(axis);
    all.push_back({"", axis_name(axis), is_text(axis) || keys == Keys::kAllLeft, key,
                   !shown || !varies(comparison.request, axis)});
  }
  all.push_back({"", "ranks", true, "over_ranks", true});
  all.push_back({"", "status", true, "status", true});
  for (Column& column : columns) all.push_back(std::move(column));
  return all;
}

}  // namespace

RowTable::RowTable(const Comparison& comparison, Keys keys, std::vector<Column> columns)
    : comparison_(comparison),
      keys_(keys),
      table_(all_columns(comparison, keys, std::move(columns))) {}

std::vector<Cell> RowTable::key_cells(const Row& row, const std::string& statistic) const {
  std::vector<Cell> cells = {result_name(comparison_.request, row.config), row.strategy(),
                             Cell::of(static_cast<std::int64_t>(row.config.world_size))};
  for (Axis axis : kAxes) {
    Cell cell(axis_value(axis, row.config));
    cell.number = !is_text(axis) && cell.text.find('/') == std::string::npos;
    cells.push_back(std::move(cell));
  }
  cells.emplace_back(statistic);
  cells.emplace_back(row.right() ? (row.traffic_error.empty() ? "right" : "other bytes") : "");
  return cells;
}

void RowTable::add(const Row& row, std::vector<Cell> cells) {
  std::vector<Cell> all = key_cells(row, "");
  all.insert(all.end(), cells.begin(), cells.end());
  table_.add_row(std::move(all));
}

void RowTable::add_more(const Row& row, const std::string& name, const std::string& statistic,
                        std::vector<Cell> cells) {
  std::vector<Cell> all = key_cells(row, statistic);
  bool first = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (table_.columns()[i].hidden) continue;
    all[i].text = first ? name : "";
    first = false;
  }
  all.insert(all.end(), cells.begin(), cells.end());
  table_.add_row(std::move(all));
}

void RowTable::add_verdict(const Row& row, std::size_t room) {
  std::string text = verdict_text(row);
  if (room > 3 && text.size() > room) text = text.substr(0, room - 3) + "...";
  add_text(row, text);
}

void RowTable::add_text(const Row& row, const std::string& text) {
  table_.add_span(key_cells(row, ""), text);
}

}  // namespace shardbench::bench
