// The table of units and the settings that no other one beats.

#include <gtest/gtest.h>

#include <sstream>

#include "bench/compare/screens.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

Comparison of(std::vector<std::string> strategies, std::vector<std::string> units,
              FakeEngine fake = {}) {
  Request request = small_request();
  request.strategies = std::move(strategies);
  for (const std::string& policy : units) {
    request.sweep.units.push_back(sharding::UnitPolicy::parse(policy));
  }
  request.base.options.units = request.sweep.units.front();
  if (units.size() == 1) request.sweep.units.clear();
  return compare(request, fake_registry(), fake.engine());
}

std::vector<std::vector<std::string>> rows_of_text(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream cells(line);
    rows.emplace_back(std::istream_iterator<std::string>(cells),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

TEST(Units, PlanAndCallsOfEveryUnit) {
  const std::vector<Section> sections = units_sections(of({"ddp", "fsdp"}, {"block"}));
  ASSERT_EQ(sections.size(), 1u);  // ddp unshards nothing
  EXPECT_EQ(sections[0].title, "fsdp, W=2, units block");
  const auto rows = rows_of_text(sections[0].table.render());
  // Two header lines, root and two blocks, the total.
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[2][0], "root");
  EXPECT_EQ(rows[3][0], "h.0");
  // A block of width h: 12 h^2 + 13 h = 789,760 elements in 12 tensors; two gathers, one scatter.
  EXPECT_EQ((std::vector<std::string>(rows[3].begin(), rows[3].begin() + 4)),
            (std::vector<std::string>{"h.0", "12", "789760", "0"}));
  EXPECT_EQ(rows[3][4], "1.506");
  EXPECT_EQ(rows[3][5], "1.00");
  EXPECT_EQ(rows[3][6], "2");
  EXPECT_EQ(rows[3][7], "1");
  EXPECT_EQ(rows[5][0], "total");
  EXPECT_EQ(rows[5][2], "1598464");
  EXPECT_EQ(rows[5][6], "6");
  EXPECT_EQ(rows[5][7], "3");
  EXPECT_EQ(rows[5][8], "9.146");  // all that a rank sends
}

TEST(Units, OwnersMakeAUnitUneven) {
  const std::vector<Section> sections = units_sections(of({"zero3"}, {"tensor"}));
  ASSERT_EQ(sections.size(), 1u);
  const auto rows = rows_of_text(sections[0].table.render());
  // A tensor is all on one of two ranks: twice the mean.
  EXPECT_EQ(rows[2][5], "2.00");
}

TEST(Units, SaysWhenNothingIsUnsharded) {
  const std::vector<Section> sections = units_sections(of({"ddp", "zero1"}, {"block"}));
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_NE(sections[0].above.at(0).find("zero3 or fsdp"), std::string::npos);
}

TEST(Units, ASweepAddsTheFrontAndLeavesItOutOfCsv) {
  const Screen screen = make_screen(TableKind::kUnits, of({"fsdp"}, {"block", "tensor", "whole"}));
  ASSERT_EQ(screen.sections.size(), 4u);
  EXPECT_TRUE(screen.sections[0].extra);
  EXPECT_EQ(screen.sections[3].title, "fsdp, W=2, units whole");
}

/// Peak and calls by units: block 100/30, tensor 90/300, whole 200/9, size 100/40.
FakeEngine with_known_peaks() {
  FakeEngine fake;
  fake.spoil = [](train::StrategyRun& run) {
    const std::string units = run.config.options.units.to_string();
    const std::int64_t mib = units == "block"    ? 100
                             : units == "tensor" ? 90
                             : units == "whole"  ? 200
                                                 : 100;
    const std::int64_t calls = units == "block"    ? 30
                               : units == "tensor" ? 300
                               : units == "whole"  ? 9
                                                   : 40;
    for (train::RankResult& rank : run.ranks) {
      rank.memory.peak = mib << 20;
      rank.traffic.front().calls += calls;
      for (std::size_t i = 0; i < rank.traffic.size(); ++i) {
        rank.traffic[i].calls = i == 0 ? calls : 0;
      }
    }
  };
  return fake;
}

TEST(Pareto, MarksWhatNoOtherSettingBeats) {
  const Comparison comparison =
      of({"fsdp"}, {"block", "tensor", "whole", "size:100k"}, with_known_peaks());
  const auto rows = rows_of_text(pareto_section(comparison).table.render());
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[2], (std::vector<std::string>{"fsdp", "2", "block", "100.0", "30", "100.0", "*"}));
  EXPECT_EQ(rows[3],
            (std::vector<std::string>{"fsdp", "2", "tensor", "90.00", "300", "100.0", "*"}));
  EXPECT_EQ(rows[4], (std::vector<std::string>{"fsdp", "2", "whole", "200.0", "9", "100.0", "*"}));
  // As high as block's, with more calls: beaten.
  EXPECT_EQ(rows[5].size(), 6u);
  EXPECT_EQ(rows[5][2].rfind("size:", 0), 0u);
}

TEST(Pareto, ASettingWithoutEffectIsSaidOnce) {
  const Section section = pareto_section(of({"ddp", "fsdp"}, {"block", "tensor"}));
  const std::string text = section.table.render();
  EXPECT_EQ(text.find("ddp"), std::string::npos) << text;
  ASSERT_EQ(section.below.size(), 2u);
  EXPECT_EQ(section.below[1],
            "ddp W=2: the settings make no difference to peak (28.39 MiB) and calls (2).");
}

TEST(Pareto, StrategiesDoNotCompeteWithEachOther) {
  const Comparison comparison = of({"zero3", "fsdp"}, {"block", "whole"}, with_known_peaks());
  for (const auto& row : rows_of_text(pareto_section(comparison).table.render())) {
    if (row.empty() || (row[0] != "zero3" && row[0] != "fsdp")) continue;
    EXPECT_EQ(row.back(), "*");
  }
}

}  // namespace
}  // namespace shardbench::bench
