#include "bench/diff/result_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr const char* kHowToMake = "make one with shardbench compare --out FILE";

std::vector<double> positive_times(const json& values, bool zero_too) {
  std::vector<double> times;
  for (const json& value : values) {
    times.push_back(value.get<double>());
    const bool fits = zero_too ? times.back() >= 0 : times.back() > 0;
    if (!fits) throw UserError::format("a time of {} ns", times.back());
  }
  return times;
}

/// Documents from before repetitions were told apart hold all steps in a row.
Groups split_evenly(const std::vector<double>& times, std::size_t repetitions) {
  if (repetitions == 0 || times.size() % repetitions != 0) return {times};
  Groups groups(repetitions);
  const std::size_t steps = times.size() / repetitions;
  for (std::size_t i = 0; i < times.size(); ++i) groups[i / steps].push_back(times[i]);
  return groups;
}

std::map<std::string, Groups> times_of(const json& result) {
  std::map<std::string, Groups> times;
  if (const auto all = result.find("by_repetition"); all != result.end()) {
    const std::pair<const char*, const char*> names[] = {{"times", "step"},
                                                         {"forward_ns", "forward"},
                                                         {"backward_ns", "backward"},
                                                         {"optimizer_ns", "optimizer"},
                                                         {"exposed_ns", "exposed"}};
    for (const json& repetition : *all) {
      for (const auto& [key, name] : names) {
        const auto values = repetition.find(key);
        if (values == repetition.end()) continue;
        times[name].push_back(positive_times(*values, std::string("exposed") == name));
      }
    }
  } else if (result.contains("step_time_ns") && result.at("step_time_ns").contains("times")) {
    times["step"] = split_evenly(positive_times(result.at("step_time_ns").at("times"), false),
                                 result.value("repetitions", std::size_t{1}));
  }
  for (const auto& [name, groups] : times) {
    for (const std::vector<double>& group : groups) {
      if (group.empty()) return {};
    }
  }
  return times;
}

std::string problem_of(const json& result) {
  const std::string message = result.value("error_message", std::string());
  const auto parity = result.find("parity");
  if (parity != result.end() && !parity->value("ok", true)) {
    const std::string tensor = parity->value("first_tensor", std::string());
    return "WRONG " + (tensor.empty() ? message : tensor + ": " + message);
  }
  if (!result.value("error_occurred", false)) return {};
  // Right, but other bytes than the formulas say: its times are kept from view as well.
  return (result.contains("traffic_error") ? "WRONG BYTES " : "FAILED ") + message;
}

void add_figures(ResultRow& row, const json& result) {
  if (const auto memory = result.find("memory_bytes"); memory != result.end()) {
    row.figures["peak"] = memory->at("peak").get<double>();
    row.figures["states"] = memory->at("persistent").get<double>();  // of the rank with that peak
  }
  if (const auto ranks = result.find("per_rank"); ranks != result.end() && !ranks->empty()) {
    double sent = 0;
    double calls = 0;
    double states = 0;  // on the fullest rank
    for (const json& rank : *ranks) {
      sent += rank.at("sent_bytes").get<double>();
      calls = std::max(calls, rank.at("calls").get<double>());
      states = std::max(states, rank.value("persistent_bytes", 0.0));
    }
    if (states > 0) row.figures["states"] = states;
    row.figures["sent"] = sent / static_cast<double>(ranks->size());
    row.figures["calls"] = calls;
  }
  const auto loss = result.find("loss");
  // A loss that is no number is written as null.
  if (loss != result.end()) {
    const auto& last = loss->at("last");
    row.figures["loss"] =
        last.is_number() ? last.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  row.parameter_hash = result.value("parameter_hash", std::string());
}

ResultRow row_of(const json& result) {
  ResultRow row;
  row.name = result.at("name").get<std::string>();
  row.strategy = result.value("strategy", row.name);
  row.problem = problem_of(result);
  if (!row.right()) return row;
  add_figures(row, result);
  row.times = times_of(result);
  if (row.times["step"].empty()) {
    throw UserError::format("the row {} has no step times; measure again with compare --out",
                            row.name);
  }
  row.tokens_per_step = result.value("tokens_per_s", 0.0) *
                        result.at("step_time_ns").at("median").get<double>() / 1e9;
  return row;
}

/// Makes names unique: the second row of a name gets "#2".
void number_names(std::vector<ResultRow>& rows) {
  std::map<std::string, int> seen;
  for (ResultRow& row : rows) {
    const int count = ++seen[row.name];
    if (count > 1) row.name += fmt::format("#{}", count);
  }
}

json parsed(const std::string& path, const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw UserError::format("{}: empty; {}", path, kHowToMake);
  }
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    if (error.byte >= text.size()) {
      throw UserError::format("{}: cut short after {} bytes; write it again with --out", path,
                              text.size());
    }
    throw UserError::format("{}: not JSON (byte {}); {}", path, error.byte, kHowToMake);
  }
}

/// In what two files are not of the same command; empty: in nothing that can be seen.
std::string difference_of(const ResultRow& a, const ResultRow& b) {
  if (a.name != b.name) return fmt::format("has {} where the first has {}", b.name, a.name);
  if (a.right() && b.right() && a.parameter_hash != b.parameter_hash) {
    return fmt::format("{} has other parameters (--autotune fixed keeps them)", a.name);
  }
  return {};
}

/// All repetitions as one.
void join(Groups& groups) {
  std::vector<double> all;
  for (const std::vector<double>& group : groups) all.insert(all.end(), group.begin(), group.end());
  groups = {std::move(all)};
}

void add_to(ResultRow& all, ResultRow more) {
  if (all.right() && !more.right()) all.problem = more.problem;
  if (!all.right()) {
    all.times.clear();
    return;
  }
  for (auto& [name, groups] : all.times) {
    join(more.times[name]);
    groups.push_back(more.times[name].front());
  }
  for (auto& [name, figure] : all.figures) figure = std::max(figure, more.figures[name]);
}

void require_same(const ResultFile& first, const ResultFile& other) {
  std::string what;
  if (first.rows.size() != other.rows.size()) what = "has another number of rows";
  for (std::size_t i = 0; what.empty() && i < first.rows.size(); ++i) {
    what = difference_of(first.rows[i], other.rows[i]);
  }
  if (what.empty()) return;
  throw UserError::format("{}: {}; pool files of one and the same command (the first: {})",
                          other.path, what, first.path);
}

}  // namespace

const ResultRow* ResultFile::find(const std::string& name) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const ResultRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

ResultFile parse_results(const std::string& path, const std::string& text) {
  const json document = parsed(path, text);
  if (!document.is_object() || !document.contains("schema_version")) {
    throw UserError::format("{}: no result document (it has no schema_version); {}", path,
                            kHowToMake);
  }
  if (document.at("schema_version") != kSchema) {
    throw UserError::format("{}: schema_version {} is not {}, which this program reads; {}", path,
                            document.at("schema_version").dump(), kSchema, kHowToMake);
  }
  ResultFile file;
  file.path = path;
  try {
    file.context = document.value("context", json::object());
    file.config = document.value("config", json::object());
    for (const json& result : document.at("results")) file.rows.push_back(row_of(result));
  } catch (const json::exception& error) {
    throw UserError::format("{}: not a complete result document ({}); {}", path, error.what(),
                            kHowToMake);
  } catch (const UserError& error) {
    throw UserError::format("{}: {}", path, error.what());
  }
  if (file.rows.empty()) {
    throw UserError::format("{}: it holds no results; {}", path, kHowToMake);
  }
  number_names(file.rows);
  return file;
}

ResultFile read_results(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw UserError::format("{}: a folder; name the result file in it", path);
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw UserError::format("{}: cannot be read ({}); {}", path, std::strerror(errno), kHowToMake);
  }
  return parse_results(path, {std::istreambuf_iterator<char>(stream), {}});
}

ResultFile pooled(std::vector<ResultFile> files) {
  SHARDBENCH_CHECK(!files.empty(), "no files to pool");
  ResultFile all = std::move(files.front());
  if (files.size() == 1) return all;
  for (ResultRow& row : all.rows) {
    for (auto& [name, groups] : row.times) join(groups);
  }
  for (std::size_t f = 1; f < files.size(); ++f) {
    require_same(all, files[f]);
    for (std::size_t r = 0; r < all.rows.size(); ++r) add_to(all.rows[r], files[f].rows[r]);
    ++all.files;
  }
  return all;
}

}  // namespace shardbench::bench
