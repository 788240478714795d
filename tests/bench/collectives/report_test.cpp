#include "bench/collectives/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using ::testing::HasSubstr;

CollectiveTiming timing_of(const CollectiveCase& row, double time_us, std::int64_t wrong) {
  return {time_us, bandwidth_of(row.kind, 4, row.bytes(), time_us), wrong, 3.0 * (1 << 20)};
}

/// Four ranks, one MiB each, one millisecond out-of-place and two in-place.
CollectivesReport made_up() {
  CollectivesReport report;
  report.request.world_size = 4;
  report.backend = "shm";
  report.host = "somewhere";
  report.pids = {101, 102, 103, 104};
  const CollectiveCase gather{CollectiveKind::kAllGather, DType::kFloat32, std::nullopt, -1,
                              1 << 20};
  const CollectiveCase reduce{CollectiveKind::kReduce, DType::kBFloat16, comm::ReduceOp::kAverage,
                              2, 1 << 21};
  report.results = {{gather, timing_of(gather, 1000, 0), timing_of(gather, 2000, 0)},
                    {reduce, timing_of(reduce, 1000, 3), timing_of(reduce, 2000, 0)}};
  return report;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(CollectivesText, HasTheColumnsOfNcclTests) {
  const std::string text = collectives_text(made_up());
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> names, units;
  for (const std::string& line : lines_of(text)) {
    if (line[0] != '#') rows.push_back(words(line));
    if (line.find(" time ") != std::string::npos && line.find("redop") != std::string::npos) {
      names = words(line);
    }
    if (line.find("(us)") != std::string::npos) units = words(line);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"#", "size", "count", "type", "redop", "root", "time",
                                             "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
                                             "#wrong", "wire"}));
  EXPECT_EQ(units, (std::vector<std::string>{"#", "(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)",
                                             "(us)", "(GB/s)", "(GB/s)", "(B)"}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0],
            (std::vector<std::string>{"4194304", "1048576", "fp32", "none", "-1", "1000", "4.194",
                                      "3.146", "0", "2000", "2.097", "1.573", "0", "3145728"}));
  EXPECT_EQ(rows[1],
            (std::vector<std::string>{"4194304", "2097152", "bf16", "avg", "2", "1000", "4.194",
                                      "4.194", "3", "2000", "2.097", "2.097", "0", "3145728"}));
}

TEST(CollectivesText, StatesDefinitionsRanksAndTheBottomLines) {
  const std::string text = collectives_text(made_up());
  EXPECT_THAT(text, HasSubstr("full payload S"));
  EXPECT_THAT(text, HasSubstr("S / time; busbw = algbw x 2(n-1)/n for all_reduce, (n-1)/n"));
  EXPECT_THAT(text, HasSubstr("GB = 1e9"));
  EXPECT_THAT(text, HasSubstr("Rank  3 Group  0 Pid    104 on  somewhere"));
  EXPECT_THAT(text, HasSubstr("# all_gather\n"));
  EXPECT_THAT(text, HasSubstr("# Out of bounds values : 0 OK\n# Avg bus bandwidth : 2.359\n"));
  EXPECT_THAT(text, HasSubstr("# Out of bounds values : 3 FAILED\n"));
}

TEST(CollectivesText, UncheckedIsNotZero) {
  CollectivesReport report = made_up();
  report.request.checks = 0;
  EXPECT_THAT(collectives_text(report), HasSubstr("N/A"));
  EXPECT_FALSE(collectives_json(report)["collectives"][0]["in_place"].contains("nwrong"));
  EXPECT_FALSE(collectives_json(report).contains("out_of_bounds"));
}

TEST(CollectivesTable, CsvOfEveryRow) {
  const Table table = collectives_table(made_up());
  const std::vector<std::string> lines = lines_of(to_csv({&table}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "op,size,count,type,redop,root,out_of_place_time_us,out_of_place_alg_bw,"
            "out_of_place_bus_bw,out_of_place_nwrong,in_place_time_us,in_place_alg_bw,"
            "in_place_bus_bw,in_place_nwrong,wire_bytes");
  EXPECT_EQ(lines[1],
            "\"all_gather\",4194304,1048576,\"fp32\",\"none\",-1,1000,4.194304,3.145728,0,2000,"
            "2.097152,1.572864,0,3145728");
  EXPECT_THAT(to_markdown(table), HasSubstr("| all_gather"));
}

TEST(CollectivesJson, NamesOfTheContract) {
  const nlohmann::ordered_json out = collectives_json(made_up());
  const auto& row = out["collectives"][1];
  EXPECT_EQ(row["op"], "reduce");
  EXPECT_EQ(row["size"], 4194304);
  EXPECT_EQ(row["count"], 2097152);
  EXPECT_EQ(row["type"], "bf16");
  EXPECT_EQ(row["redop"], "avg");
  EXPECT_EQ(row["root"], 2);
  EXPECT_EQ(row["out_of_place"]["time_us"], 1000);
  EXPECT_EQ(row["out_of_place"]["nwrong"], 3);
  EXPECT_DOUBLE_EQ(row["in_place"]["bus_bw"].get<double>(), 2.097152);
  EXPECT_EQ(row["in_place"]["wire_bytes"], 3 << 20);
  EXPECT_EQ(out["devices"].size(), 4u);
  EXPECT_EQ(out["out_of_bounds"]["count"], 3);
  EXPECT_EQ(out["out_of_bounds"]["okay"], false);
  EXPECT_EQ(out["okay"], false);
}

TEST(CollectivesJson, SaysWhatFailed) {
  CollectivesReport report;
  report.failure = comm::AbortRecord{};
  report.failure->message = "rank 1 was killed";
  const nlohmann::ordered_json out = collectives_json(report);
  EXPECT_EQ(out["error_message"], "rank 1 was killed");
  EXPECT_EQ(out["okay"], false);
  EXPECT_TRUE(out["collectives"].empty());
}

}  // namespace
}  // namespace shardbench::bench
