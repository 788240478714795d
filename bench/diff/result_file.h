#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/diff/change.h"

namespace shardbench::bench {

/// One result of a document, as far as a comparison of documents reads it.
struct ResultRow {
  std::string name;  ///< "fsdp/w4/block"; the second one of a name gets "#2"
  std::string strategy;
  /// "WRONG ..." or "FAILED ...": such a row has no times. Empty: it is right.
  std::string problem;
  /// Steps by repetition, ns: "step", and where the document has them "forward", "backward",
  /// "optimizer", "exposed". Empty for a row with a problem.
  std::map<std::string, Groups> times;
  double tokens_per_step = 0;             ///< over all ranks
  std::map<std::string, double> figures;  ///< "peak", "states", "sent" (bytes), "calls", "loss"
  std::string parameter_hash;             ///< empty: not established

  bool right() const { return problem.empty(); }
};

struct ResultFile {
  std::string path;  ///< of the first
  int files = 1;     ///< that were pooled
  nlohmann::json context;
  nlohmann::json config;
  std::vector<ResultRow> rows;

  /// The row of this name, or null.
  const ResultRow* find(const std::string& name) const;
};

/// Reads what compare and run write (schema 1). Fields that diff does not know are ignored. Throws
/// UserError in one line that names the file: missing, cut short, not JSON, another schema, no
/// results, a right row without times.
ResultFile read_results(const std::string& path);
/// The same from a text; `path` is for messages.
ResultFile parse_results(const std::string& path, const std::string& text);

/// Several files of one side, measured in turns with those of the other, as one. What a file holds
/// of a row, its repetitions together, becomes one repetition: they were measured in one stretch.
/// Figures are the largest; a row that is not right in one file is not right. One file is returned
/// as it is. Throws UserError naming the first file whose rows or parameters are others.
ResultFile pooled(std::vector<ResultFile> files);

}  // namespace shardbench::bench
