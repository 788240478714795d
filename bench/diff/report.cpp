#include "bench/diff/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/compare/format.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 8;
constexpr std::size_t kMostDifferences = 6;

std::string signed_percent(double fraction) {
  if (!std::isfinite(fraction)) return kDash;
  const double value = fraction * 100;
  // Exact figures may differ by less than a tenth of a per cent.
  if (value != 0 && std::abs(value) < 0.095) return fmt::format("{:+.1e}", value);
  return std::abs(value) < 99.95 ? fmt::format("{:+.1f}", value) : fmt::format("{:+.0f}", value);
}

Cell change_cell(const std::optional<double>& fraction) {
  if (!fraction) return kDash;
  if (*fraction == 0) return Cell::of("0", 0);
  return Cell::of(signed_percent(*fraction), *fraction * 100);
}

std::string interval_text(const DiffLine& line) {
  if (!line.low || !line.high) return kDash;
  return fmt::format("{:+.1f} .. {:+.1f}", *line.low * 100, *line.high * 100);
}

Cell percent_value(const std::optional<double>& fraction) {
  return fraction ? Cell::of("", *fraction * 100) : Cell(kDash);
}

Cell value_cell(const Metric& metric, const std::optional<double>& value, const std::string& text) {
  if (!text.empty()) return Cell::named(text.substr(0, kHashDigits), text);
  if (!value) return kNotMeasured;
  const double shown = *value / metric.per_unit;
  // Losses need more figures than times: they differ late.
  if (metric.kind == Metric::Kind::kLoss) return Cell::of(fmt::format("{:.6f}", shown), shown);
  const bool whole = metric.per_unit == 1;
  return Cell::of(whole ? fmt::format("{:.0f}", shown) : figures(shown), shown);
}

std::string metric_text(const Metric& metric) {
  return metric.unit.empty() ? metric.name : fmt::format("{}, {}", metric.name, metric.unit);
}

int count_of(const Diff& diff, std::initializer_list<Verdict> verdicts) {
  int count = 0;
  for (const DiffLine& line : diff.lines) {
    count += static_cast<int>(std::count(verdicts.begin(), verdicts.end(), line.verdict));
  }
  return count;
}

std::string base_unit(const Metric& metric) {
  if (metric.unit == "ms") return "ns";
  return metric.unit == "MiB" ? "bytes" : "";
}

json line_json(const DiffLine& line) {
  json out = {{"row", line.row}, {"metric", line.metric == nullptr ? "result" : line.metric->name}};
  if (line.metric != nullptr && !base_unit(*line.metric).empty()) {
    out["unit"] = base_unit(*line.metric);
  }
  if (!line.old_text.empty()) out["old"] = line.old_text;
  if (!line.new_text.empty()) out["new"] = line.new_text;
  if (line.old_value) out["old"] = *line.old_value;
  if (line.new_value) out["new"] = *line.new_value;
  if (line.change && std::isfinite(*line.change)) out["change"] = *line.change;
  if (line.low && std::isfinite(*line.low) && std::isfinite(*line.high)) {
    out["interval_95"] = {*line.low, *line.high};
  }
  if (!line.unit.empty()) out["resampled"] = line.unit;
  out["verdict"] = to_string(line.verdict);
  if (!line.note.empty()) out["note"] = line.note;
  return out;
}

}  // namespace

Table diff_table(const Diff& diff) {
  Table table({{"", "row", true, "row"},
               {"", "metric", true, "metric"},
               {"", "unit", true, "unit", true},
               {"", "old", false, "old"},
               {"", "new", false, "new"},
               {"change", "%", false, "change_percent"},
               {"95 % interval", "%", false, "interval"},
               {"", "low", false, "low_percent", true},
               {"", "high", false, "high_percent", true},
               {"", "verdict", true, "verdict"},
               {"", "status", true, "status", true}});
  std::string shown;
  for (const DiffLine& line : diff.lines) {
    const Cell row = Cell::named(line.row == shown ? "" : line.row, line.row);
    shown = line.row;
    if (line.metric == nullptr) {
      table.add_span({row, "result"}, fmt::format("{} -> {}: {}", line.old_text, line.new_text,
                                                  to_string(line.verdict)));
      continue;
    }
    const Metric& metric = *line.metric;
    table.add_row({row, Cell::named(metric_text(metric), metric.name), metric.unit,
                   value_cell(metric, line.old_value, line.old_text),
                   value_cell(metric, line.new_value, line.new_text), change_cell(line.change),
                   interval_text(line), percent_value(line.low), percent_value(line.high),
                   to_string(line.verdict), ""});
  }
  return table;
}

std::string diff_footer(const Diff& diff) {
  const int same = count_of(diff, {Verdict::kSame, Verdict::kNoDifference});
  const int undecided = count_of(diff, {Verdict::kTooFew});
  const int different = count_of(diff, {Verdict::kDifferent});
  std::string summary =
      fmt::format("{} worse, {} better, {} the same or no difference",
                  count_of(diff, {Verdict::kWorse}), count_of(diff, {Verdict::kBetter}), same);
  if (different > 0) summary += fmt::format(", {} different", different);
  if (undecided > 0) summary += fmt::format(", {} undecided", undecided);
  std::string out = wrapped("Summary  ", summary);
  const auto few = std::find_if(diff.lines.begin(), diff.lines.end(),
                                [](const DiffLine& line) { return !line.note.empty(); });
  if (few != diff.lines.end()) {
    out += wrapped("Too few  ",
                   fmt::format("{} can't tell a change from noise; measure both with "
                               "--repetitions 8 (at least {}), or with --steps {} "
                               "and more",
                               few->note, kFewestRepetitions, kFewestBlocks * kBlockSteps));
  }
  if (!diff.only_old.empty()) out += wrapped("Only old ", join(diff.only_old));
  if (!diff.only_new.empty()) out += wrapped("Only new ", join(diff.only_new));
  return out;
}

std::string diff_warning(const Diff& diff) {
  if (diff.differences.empty()) return {};
  const std::size_t shown = std::min(diff.differences.size(), kMostDifferences);
  std::string text = "not the same experiment (old, new): ";
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : "; ") + diff.differences[i];
  if (diff.differences.size() > shown) {
    text += fmt::format("; and {} more", diff.differences.size() - shown);
  }
  return text;
}

json diff_json(const Diff& diff, const ResultFile& old_file, const ResultFile& new_file) {
  json lines = json::array();
  for (const DiffLine& line : diff.lines) lines.push_back(line_json(line));
  const auto side = [](const ResultFile& file) {
    return json{{"path", file.path},
                {"files", file.files},
                {"date", file.context.value("date", std::string())},
                {"git_sha", file.context.value("git_sha", std::string())}};
  };
  return {{"schema_version", 1},       {"kind", "diff"},
          {"old", side(old_file)},     {"new", side(new_file)},
          {"lines", std::move(lines)}, {"only_old", diff.only_old},
          {"only_new", diff.only_new}, {"differences", diff.differences}};
}

}  // namespace shardbench::bench
