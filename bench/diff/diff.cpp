#include "bench/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/diff/experiment.h"
#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

using Kind = Metric::Kind;

/// Losses this close can come from another order of additions.
constexpr double kLossRounding = 1e-5;

/// Not a number is worse than any, in what should be small.
double change_between(double before, double after) {
  if (std::isnan(before) || std::isnan(after)) {
    if (std::isnan(before) == std::isnan(after)) return 0;
    return std::isnan(after) ? std::numeric_limits<double>::infinity()
                             : -std::numeric_limits<double>::infinity();
  }
  if (before == after) return 0;
  if (before == 0) return std::copysign(std::numeric_limits<double>::infinity(), after);
  return (after - before) / std::abs(before);
}

Verdict direction(const Metric& metric, double change) {
  return (change > 0) == metric.higher_is_better ? Verdict::kBetter : Verdict::kWorse;
}

const Groups* groups_of(const ResultRow& row, const std::string& key) {
  const auto found = row.times.find(key);
  return found == row.times.end() || found->second.empty() ? nullptr : &found->second;
}

/// Compares one row of either side.
class RowDiff {
 public:
  RowDiff(const ResultRow& before, const ResultRow& after, std::string name, bool paired,
          double min_change)
      : before_(before),
        after_(after),
        name_(std::move(name)),
        paired_(paired),
        min_change_(min_change) {
    if (before.right() && after.right()) {
      step_ = change_of_times(*groups_of(before, "step"), *groups_of(after, "step"), Scale::kRatio);
    }
  }

  void add_lines(const std::vector<const Metric*>& metrics, std::vector<DiffLine>& lines) const {
    if (!before_.right() || !after_.right()) {
      lines.push_back(problem());
      return;
    }
    for (const Metric* metric : metrics) {
      std::optional<DiffLine> line = line_of(*metric);
      if (line) lines.push_back(std::move(*line));
    }
  }

 private:
  DiffLine started(const Metric* metric) const {
    DiffLine line;
    line.row = name_;
    line.metric = metric;
    return line;
  }

  DiffLine problem() const {
    DiffLine line = started(nullptr);
    line.old_text = before_.right() ? "right" : before_.problem;
    line.new_text = after_.right() ? "right" : after_.problem;
    line.verdict = before_.right() ? Verdict::kWorse : Verdict::kBetter;
    if (!before_.right() && !after_.right()) {
      line.verdict = before_.problem == after_.problem ? Verdict::kSame : Verdict::kDifferent;
    }
    return line;
  }

  std::optional<DiffLine> line_of(const Metric& metric) const {
    switch (metric.kind) {
      case Kind::kTime:
        return time(metric);
      case Kind::kDerived:
        return throughput(metric);
      case Kind::kExact:
      case Kind::kLoss:
        return exact(metric);
      case Kind::kHash:
        return hash(metric);
    }
    return {};
  }

  Change change_of_times(const Groups& a, const Groups& b, Scale scale) const {
    return paired_ ? paired_change_of(a, b, scale) : change_of(a, b, scale);
  }

  /// `share`: of the step that one whole change of the metric means; small ones count for nothing.
  Verdict verdict(const Metric& metric, const Change& change, double share) const {
    if (!change.enough) return Verdict::kTooFew;
    const bool large = std::abs(change.change) * share >= min_change_;
    return large && change.significant() ? direction(metric, change.change)
                                         : Verdict::kNoDifference;
  }

  void set_change(DiffLine& line, const Change& change) const {
    line.note = change.missing;
    if (!change.enough) return;
    line.old_value = change.old_value;
    line.new_value = change.new_value;
    line.change = change.change;
    line.low = change.low;
    line.high = change.high;
    line.unit = change.unit;
  }

  std::optional<DiffLine> time(const Metric& metric) const {
    const Groups* before = groups_of(before_, metric.key);
    const Groups* after = groups_of(after_, metric.key);
    if (before == nullptr || after == nullptr) return {};
    DiffLine line = started(&metric);
    if (metric.key == "step") {
      set_change(line, step_);
      line.verdict = verdict(metric, step_, 1);
      return line;
    }
    // Waiting may be 0. What counts is what a change does to the step, not to a small part of it.
    const Change change = change_of_times(*before, *after, Scale::kDifference);
    if (change.enough && change.old_value == 0 && change.new_value == 0) return {};
    set_change(line, change);
    const double part = std::abs(change.new_value - change.old_value) / step_.old_value;
    const double size = std::abs(change.change);
    line.verdict = verdict(metric, change, size > 0 && std::isfinite(size) ? part / size : 1);
    return line;
  }

  std::optional<DiffLine> throughput(const Metric& metric) const {
    if (before_.tokens_per_step <= 0 || after_.tokens_per_step <= 0) return {};
    DiffLine line = started(&metric);
    line.verdict = Verdict::kTooFew;
    line.note = step_.missing;
    if (!step_.enough) return line;
    // The work of a step may differ between files: tokens per second still compare.
    const double work = after_.tokens_per_step / before_.tokens_per_step;
    line.old_value = before_.tokens_per_step * 1e9 / step_.old_value;
    line.new_value = after_.tokens_per_step * 1e9 / step_.new_value;
    Change change = step_;
    change.change = work / (1 + step_.change) - 1;
    change.low = work / (1 + step_.high) - 1;
    change.high = work / (1 + step_.low) - 1;
    line.change = change.change;
    line.low = change.low;
    line.high = change.high;
    line.unit = change.unit;
    // The step's verdict, the other way round; a second test could say something else.
    const bool decided = std::abs(step_.change) >= min_change_ && step_.significant();
    line.verdict = work == 1 ? (decided ? direction(metric, change.change) : Verdict::kNoDifference)
                             : verdict(metric, change, 1);
    return line;
  }

  std::optional<DiffLine> exact(const Metric& metric) const {
    const auto before = before_.figures.find(metric.key);
    const auto after = after_.figures.find(metric.key);
    if (before == before_.figures.end() || after == after_.figures.end()) return {};
    DiffLine line = started(&metric);
    line.old_value = before->second;
    line.new_value = after->second;
    const double change = change_between(before->second, after->second);
    line.change = change;
    line.verdict = change == 0 ? Verdict::kSame : direction(metric, change);
    const bool rounding = metric.kind == Kind::kLoss && std::abs(change) < kLossRounding;
    if (change != 0 && rounding) line.verdict = Verdict::kNoDifference;
    return line;
  }

  std::optional<DiffLine> hash(const Metric& metric) const {
    if (before_.parameter_hash.empty() || after_.parameter_hash.empty()) return {};
    DiffLine line = started(&metric);
    line.old_text = before_.parameter_hash;
    line.new_text = after_.parameter_hash;
    line.verdict = line.old_text == line.new_text ? Verdict::kSame : Verdict::kDifferent;
    return line;
  }

  const ResultRow& before_;
  const ResultRow& after_;
  std::string name_;
  bool paired_;
  double min_change_;
  Change step_;
};

/// The row that `text` names: by name, or by strategy where that names one.
const ResultRow& named_row(const ResultFile& file, const std::string& text) {
  if (const ResultRow* row = file.find(text)) return *row;
  std::vector<const ResultRow*> of_strategy;
  std::vector<std::string> names;
  for (const ResultRow& row : file.rows) {
    names.push_back(row.name);
    if (row.strategy == text) of_strategy.push_back(&row);
  }
  if (of_strategy.size() == 1) return *of_strategy.front();
  throw UserError::format("--rows '{}': {} in {}; choose from {}", text,
                          of_strategy.empty() ? "no such row" : "several rows", file.path,
                          join(names));
}

bool wanted(const ResultRow& row, const DiffOptions& options) {
  const std::vector<std::string>& names = options.strategies;
  return names.empty() || std::find(names.begin(), names.end(), row.strategy) != names.end();
}

void compare_by_name(const ResultFile& old_file, const ResultFile& new_file,
                     const DiffOptions& options, Diff& out) {
  // As many files on both sides were measured in turns.
  const bool paired = old_file.files > 1 && old_file.files == new_file.files;
  bool common = false;
  for (const ResultRow& row : old_file.rows) {
    if (!wanted(row, options)) continue;
    const ResultRow* other = new_file.find(row.name);
    if (other == nullptr) {
      out.only_old.push_back(row.name);
      continue;
    }
    common = true;
    RowDiff(row, *other, row.name, paired, options.min_change)
        .add_lines(options.metrics, out.lines);
  }
  for (const ResultRow& row : new_file.rows) {
    if (wanted(row, options) && old_file.find(row.name) == nullptr) {
      out.only_new.push_back(row.name);
    }
  }
  if (common) return;
  if (out.only_old.empty() && out.only_new.empty()) {
    throw UserError::format("--strategy {}: neither {} nor {} has a row of it",
                            join(options.strategies, ","), old_file.path, new_file.path);
  }
  throw UserError::format(
      "{} and {} have no row in common: {} against {}; name two with --rows OLD,NEW", old_file.path,
      new_file.path, join(out.only_old), join(out.only_new));
}

}  // namespace

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kNoDifference:
      return "no difference";
    case Verdict::kSame:
      return "same";
    case Verdict::kDifferent:
      return "different";
    case Verdict::kTooFew:
      return "too few";
  }
  return {};
}

Diff diff(const ResultFile& old_file, const ResultFile& new_file, const DiffOptions& options) {
  Diff out;
  out.differences = differences_of(old_file, new_file);
  if (!options.rows) {
    compare_by_name(old_file, new_file, options, out);
    return out;
  }
  const ResultRow& before = named_row(old_file, options.rows->first);
  const ResultRow& after = named_row(new_file, options.rows->second);
  const bool in_turns =
      old_file.path == new_file.path || (old_file.files > 1 && old_file.files == new_file.files);
  RowDiff(before, after, fmt::format("{} -> {}", options.rows->first, options.rows->second),
          in_turns, options.min_change)
      .add_lines(options.metrics, out.lines);
  return out;
}

bool any_worse(const Diff& diff, double fraction) {
  if (!diff.only_old.empty()) return true;
  return std::any_of(diff.lines.begin(), diff.lines.end(), [&](const DiffLine& line) {
    return line.verdict == Verdict::kWorse && std::abs(line.change.value_or(1e9)) >= fraction;
  });
}

}  // namespace shardbench::bench
