#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/diff/metric.h"
#include "bench/diff/result_file.h"

namespace shardbench::bench {

enum class Verdict { kBetter, kWorse, kNoDifference, kSame, kDifferent, kTooFew };
/// "better", "no difference", ...
std::string to_string(Verdict verdict);

/// One line: one metric of one row. Values in ns, bytes, tokens per second.
struct DiffLine {
  std::string row;
  const Metric* metric = nullptr;  ///< null: whether the row is right at all (see *_text)
  std::optional<double> old_value, new_value;
  std::string old_text, new_text;   ///< hashes, or what is wrong
  std::optional<double> change;     ///< (new - old) / |old|
  std::optional<double> low, high;  ///< its 95 % interval
  std::string unit;                 ///< what was resampled for it
  Verdict verdict = Verdict::kSame;
  std::string note;  ///< why too few
};

struct DiffOptions {
  std::vector<const Metric*> metrics;
  std::vector<std::string> strategies;  ///< empty: all
  /// Compare the first, of the old file, with the second, of the new file, in place of rows of the
  /// same name. A strategy alone will do where it names one row.
  std::optional<std::pair<std::string, std::string>> rows;
  /// A time that changed by less than this part of the step counts as no difference: below it,
  /// two measurements of one and the same program differ too.
  double min_change = 0.02;
};

struct Diff {
  std::vector<DiffLine> lines;
  std::vector<std::string> only_old, only_new;  ///< rows that one side lacks
  /// Keys of context and config that differ, as "config.steps: 10, 20".
  std::vector<std::string> differences;
};

/// Compares rows of the same name, or the two that `rows` names. Where both sides were measured in
/// turns (two rows of one file, or as many pooled files on both sides), repetitions are compared in
/// pairs. Throws UserError when there is nothing to compare.
Diff diff(const ResultFile& old_file, const ResultFile& new_file, const DiffOptions& options);

/// Whether anything got worse by at least `fraction`: a verdict, a larger loss, or a row that was
/// right and is not now, or not there (which always count).
bool any_worse(const Diff& diff, double fraction);

}  // namespace shardbench::bench
