#pragma once

#include <string>
#include <vector>

#include "bench/compare/plain_words.h"
#include "bench/compare/request.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {

/// For each column that the screen shows: what it is and how this run's number comes about, worked
/// out on one row (the last right one of the block with the largest W, of a strategy that cuts the
/// weights where there is one), which the first paragraph names. The peak is taken apart for every
/// row of that block. Empty when no row is right.
std::vector<Paragraph> explain(const Comparison& comparison, const Screen& screen);

/// What an explanation works with.
struct Example {
  const Comparison* comparison = nullptr;
  const Block* block = nullptr;
  const Row* row = nullptr;
  const Row* baseline = nullptr;  ///< null: none is right
  double parameters = 0;          ///< elements of the model

  double weights_bytes() const { return parameters * 4; }  ///< fp32, whatever computes or travels
  /// " in fp32", where something else computes or travels.
  const char* in_fp32() const { return all_fp32(row->config) ? "" : " in fp32"; }
};

/// The explanation of a column by its key, or "" for a key of another part.
std::string explain_time(const Example& example, const std::string& key);
std::string explain_memory(const Example& example, const std::string& key);
std::string explain_traffic(const Example& example, const std::string& key);
std::string explain_units(const Example& example, const std::string& key);
std::string explain_peers(const Example& example, const std::string& key);

}  // namespace shardbench::bench
