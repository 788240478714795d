#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/compare/screens.h"

namespace shardbench::bench {

/// A table with a line (or several) per row of a comparison. It begins with the columns that say
/// which row it is: name, strategy, W, and every axis; shown are strategy, W and what varies.
class RowTable {
 public:
  enum class Keys {
    kAll,           ///< strategy, W, axes that vary
    kAllLeft,       ///< the same, W to the left, for tables that go on with texts
    kStrategyOnly,  ///< the rest stands above the table
    kNone,          ///< all of it stands above the table
  };

  RowTable(const Comparison& comparison, Keys keys, std::vector<Column> columns);

  /// `cells` for the columns after the first ones.
  void add(const Row& row, std::vector<Cell> cells);
  /// A further line of the same row: the columns that say which row it is stay blank on a screen.
  /// `name` ("  min") stands in their place, `statistic` ("min") in csv.
  void add_more(const Row& row, const std::string& name, const std::string& statistic,
                std::vector<Cell> cells);
  /// A text in place of the row's figures.
  void add_text(const Row& row, const std::string& text);
  /// What a row says that has no figures, cut to `room` letters if that is not 0.
  void add_verdict(const Row& row, std::size_t room = 0);

  Table take() { return std::move(table_); }

 private:
  std::vector<Cell> key_cells(const Row& row, const std::string& statistic) const;

  const Comparison& comparison_;
  Keys keys_;
  Table table_;
};

/// The three lines "  min", "  mean", "  max" of a row whose ranks differ; `cells_of` gets the
/// member of Spread to show.
template <typename CellsOf>
void add_min_mean_max(RowTable& table, const Row& row, CellsOf cells_of) {
  table.add_more(row, "  min", "min", cells_of(&Spread::min));
  table.add_more(row, "  mean", "mean", cells_of(&Spread::mean));
  table.add_more(row, "  max", "max", cells_of(&Spread::max));
}

}  // namespace shardbench::bench
