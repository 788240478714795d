#include "bench/collectives/report.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/compare/format.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

std::string redop_text(const CollectiveCase& row) {
  return row.op ? std::string(redop_name(*row.op)) : std::string("none");
}

/// Five characters or fewer, as many figures as fit: 0.012 1.234 12.35 123.5 1234.
std::string five(double value) { return figures(value); }

std::string wrong_text(const CollectivesReport& report, const CollectiveTiming& timing) {
  return report.request.checks == 0 ? "N/A" : std::to_string(timing.wrong);
}

std::string header_text(const CollectivesReport& report) {
  const CollectivesRequest& request = report.request;
  std::string out = fmt::format(
      "# shardbench collectives: backend {}, {} ranks, {} memory, {}\n"
      "# minBytes {} maxBytes {} step: {}, warmup iters: {}, iters: {}, check: {}\n#\n",
      report.backend, request.world_size, request.symmetric ? "symmetric" : "plain",
      request.link ? "link " + request.link->to_string() : std::string("no link"),
      request.min_bytes, request.max_bytes,
      request.step_bytes > 0 ? fmt::format("{}(bytes)", request.step_bytes)
                             : fmt::format("{}(factor)", request.factor),
      request.warmup, request.iterations, request.checks);
  out +=
      "# size    full payload S: all_gather's output, reduce_scatter's input; cut down to whole\n"
      "#         elements, parts of ceil(count/n), the last ranks' smaller or empty\n"
      "# time    slowest of the n ranks; each rank's mean over the iterations, which start at a\n"
      "#         barrier after the warm-up; each call is waited for, the last on all ranks\n"
      "# algbw   S / time; busbw = algbw x 2(n-1)/n for all_reduce, (n-1)/n for all_gather and\n"
      "#         reduce_scatter, 1 for broadcast and reduce; GB = 1e9 bytes\n"
      "# #wrong  elements of all ranks that differ in any bit from the exact result\n"
      "# wire    bytes counted where they are moved, sent by one rank in one call (mean)\n"
      "#         all_reduce works in place: its out-of-place time has a copy of the input\n#\n"
      "# Using devices\n";
  for (std::size_t rank = 0; rank < report.pids.size(); ++rank) {
    out += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device cpu\n", rank,
                       report.pids[rank], report.host);
  }
  return out;
}

std::string timing_text(const CollectivesReport& report, const CollectiveTiming& timing) {
  return fmt::format("{:>8} {:>7} {:>7} {:>6}", five(timing.time_us),
                     five(timing.bandwidth.algo_gb_per_s), five(timing.bandwidth.bus_gb_per_s),
                     wrong_text(report, timing));
}

std::string wire_text(const CollectiveTiming& timing) {
  if (!timing.wire_counted()) return kNotMeasured;
  return fmt::format("{}", std::llround(timing.wire_bytes_mean));
}

std::string row_text(const CollectivesReport& report, const CollectiveResult& result) {
  const CollectiveCase& row = result.row;
  return fmt::format("{:>12} {:>13} {:>9} {:>7} {:>7} {}  {} {:>12}\n", row.bytes(), row.count,
                     name_of(row.dtype), redop_text(row), row.root,
                     timing_text(report, result.out_of_place), timing_text(report, result.in_place),
                     wire_text(result.out_of_place));
}

/// The lines over the columns; both units stand in the third.
std::string columns_text() {
  const std::string names =
      fmt::format("{:>8} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format("{:>8} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  const auto line = [](const char* size, const char* count, const char* type, const char* redop,
                       const char* root, const std::string& first, const std::string& second,
                       const char* wire) {
    std::string text = fmt::format("#{:>11} {:>13} {:>9} {:>7} {:>7} {}  {} {:>12}", size, count,
                                   type, redop, root, first, second, wire);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  };
  const auto centred = [&](const char* label) {
    return fmt::format("{:^{}}", label, names.size());
  };
  return line("", "", "", "", "", centred("out-of-place"), centred("in-place"), "") +
         line("size", "count", "type", "redop", "root", names, names, "wire") +
         line("(B)", "(elements)", "", "", "", units, units, "(B)");
}

/// What nccl-tests closes with, over the rows [begin, end).
std::string footer_text(const CollectivesReport& report, std::size_t begin, std::size_t end) {
  CollectivesReport part;
  part.results.assign(report.results.begin() + static_cast<std::ptrdiff_t>(begin),
                      report.results.begin() + static_cast<std::ptrdiff_t>(end));
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth : {}\n", part.wrong(),
                     part.wrong() == 0 ? "OK" : "FAILED", five(part.average_bus_gb_per_s()));
}

json timing_json(const CollectivesReport& report, const CollectiveTiming& timing) {
  json out = {{"time_us", timing.time_us},
              {"alg_bw", timing.bandwidth.algo_gb_per_s},
              {"bus_bw", timing.bandwidth.bus_gb_per_s}};
  if (report.request.checks > 0) out["nwrong"] = timing.wrong;
  if (timing.wire_counted()) out["wire_bytes"] = timing.wire_bytes_mean;
  return out;
}

json config_json(const CollectivesRequest& request) {
  json out = {{"world_size", request.world_size},
              {"min_bytes", request.min_bytes},
              {"max_bytes", request.max_bytes},
              {"iterations", request.iterations},
              {"warmup", request.warmup},
              {"checks", request.checks},
              {"memory", request.symmetric ? "symmetric" : "plain"},
              {"timeout_s", std::chrono::duration<double>(request.timeout).count()}};
  if (request.step_bytes > 0) {
    out["step_bytes"] = request.step_bytes;
  } else {
    out["factor"] = request.factor;
  }
  return out;
}

}  // namespace

std::string collectives_text(const CollectivesReport& report) {
  std::string out = header_text(report);
  for (std::size_t begin = 0; begin < report.results.size();) {
    std::size_t end = begin;
    const comm::CollectiveKind kind = report.results[begin].row.kind;
    out += fmt::format("#\n# {}\n{}", name_of(kind), columns_text());
    for (; end < report.results.size() && report.results[end].row.kind == kind; ++end) {
      out += row_text(report, report.results[end]);
    }
    out += footer_text(report, begin, end);
    begin = end;
  }
  return out;
}

Table collectives_table(const CollectivesReport& report) {
  std::vector<Column> columns = {{"", "op", true, "op"},
                                 {"size", "(B)", false, "size"},
                                 {"count", "(elements)", false, "count"},
                                 {"", "type", true, "type"},
                                 {"", "redop", true, "redop"},
                                 {"", "root", false, "root"}};
  for (const std::string place : {"out-of-place", "in-place"}) {
    const std::string key = place == "in-place" ? "in_place_" : "out_of_place_";
    columns.push_back({place, "time (us)", false, key + "time_us"});
    columns.push_back({place, "algbw (GB/s)", false, key + "alg_bw"});
    columns.push_back({place, "busbw (GB/s)", false, key + "bus_bw"});
    columns.push_back({place, "#wrong", false, key + "nwrong"});
  }
  columns.push_back({"wire", "(B)", false, "wire_bytes"});
  Table table(std::move(columns));
  for (const CollectiveResult& result : report.results) {
    const CollectiveCase& row = result.row;
    std::vector<Cell> cells = {
        std::string(name_of(row.kind)),  Cell::of(row.bytes()), Cell::of(row.count),
        std::string(name_of(row.dtype)), redop_text(row),       Cell::of(std::int64_t{row.root})};
    for (const CollectiveTiming* timing : {&result.out_of_place, &result.in_place}) {
      cells.push_back(Cell::of(five(timing->time_us), timing->time_us));
      const Bandwidth& bandwidth = timing->bandwidth;
      cells.push_back(Cell::of(five(bandwidth.algo_gb_per_s), bandwidth.algo_gb_per_s));
      cells.push_back(Cell::of(five(bandwidth.bus_gb_per_s), bandwidth.bus_gb_per_s));
      cells.push_back(report.request.checks > 0 ? Cell::of(timing->wrong) : Cell(kNotMeasured));
    }
    const CollectiveTiming& timing = result.out_of_place;
    cells.push_back(timing.wire_counted() ? Cell::of(wire_text(timing), timing.wire_bytes_mean)
                                          : Cell(kNotMeasured));
    table.add_row(std::move(cells));
  }
  return table;
}

json collectives_json(const CollectivesReport& report) {
  json devices = json::array();
  for (std::size_t rank = 0; rank < report.pids.size(); ++rank) {
    devices.push_back({{"rank", rank},
                       {"group", 0},
                       {"pid", report.pids[rank]},
                       {"hostname", report.host},
                       {"device", "cpu"}});
  }
  json rows = json::array();
  for (const CollectiveResult& result : report.results) {
    rows.push_back({{"op", name_of(result.row.kind)},
                    {"size", result.row.bytes()},
                    {"count", result.row.count},
                    {"type", name_of(result.row.dtype)},
                    {"redop", redop_text(result.row)},
                    {"root", result.row.root},
                    {"world_size", report.request.world_size},
                    {"out_of_place", timing_json(report, result.out_of_place)},
                    {"in_place", timing_json(report, result.in_place)}});
  }
  json out = {{"config", config_json(report.request)},
              {"devices", std::move(devices)},
              {"collectives", std::move(rows)}};
  if (report.request.checks > 0 && !report.failure) {
    out["out_of_bounds"] = {{"count", report.wrong()}, {"okay", report.wrong() == 0}};
  }
  if (!report.results.empty()) {
    out["average_bus_bandwidth"] = {{"bandwidth", report.average_bus_gb_per_s()}};
  }
  if (report.failure) {
    out["error_occurred"] = true;
    out["error_message"] = report.failure->message;
  }
  out["okay"] = report.exit_code() == 0;
  return out;
}

}  // namespace shardbench::bench
