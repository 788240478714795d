#include "bench/compare/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

TEST(Table, GroupsAndAlignment) {
  Table table({{"", "name", true}, {"step", "ms"}, {"step", "+-%"}, {"memory", "peak"}});
  table.add_row({"ddp", "12.50", "1.0", "100"});
  table.add_row({"fsdp", "9.000", "12", "7"});
  EXPECT_EQ(table.render(),
            "       step   memory\n"
            "name    ms +-%  peak\n"
            "ddp  12.50 1.0   100\n"
            "fsdp 9.000  12     7\n");
}

TEST(Table, SpanRunsAcrossTheOtherColumns) {
  Table table({{"", "name", true}, {"", "W"}, {"g", "a"}, {"g", "b"}});
  table.add_row({"x", "2", "1", "2"});
  table.add_span({"y", "12"}, "WRONG h.0.weight");
  EXPECT_EQ(table.render(),
            "          g\n"
            "name  W  a b\n"
            "x     2  1 2\n"
            "y    12  WRONG h.0.weight\n");
}

TEST(Table, LabelWiderThanItsColumnsMakesRoom) {
  Table table({{"", "n", true}, {"first label", "a"}, {"second label", "b"}});
  table.add_row({"x", "1", "2"});
  const std::string text = table.render();
  EXPECT_NE(text.find("first label second label\n"), std::string::npos) << text;
}

TEST(Table, RefusesRowsOfAnotherWidth) {
  Table table({{"", "a"}, {"", "b"}});
  EXPECT_THROW(table.add_row({"1"}), InvariantError);
  EXPECT_THROW(table.add_span({"1", "2"}, "x"), InvariantError);
}

/// A table with everything that writers must tell apart.
Table sample() {
  Table table({{"", "strategy", true, "strategy"},
               {"", "status", true, "status", true},
               {"memory, MiB", "peak", false, "peak_mib"},
               {"step", "(ms)", false, "step_ms"},
               {"", "note", true}});
  table.add_row({"ddp", "right", Cell::of("12.35", 12.345678), Cell::of("1.000", 1), "a|b"});
  table.add_row(
      {Cell::named("  min", "ddp"), "right", Cell::of(std::int64_t{7}), "-", "say \"x\", y"});
  table.add_row({"zero3", "right", "n/m", Cell::of("nan", std::nan("")), ""});
  table.add_span({"fsdp", ""}, "WRONG h.0.weight");
  return table;
}

TEST(Table, HiddenColumnsAreNotShown) {
  EXPECT_EQ(sample().render(),
            "   memory, MiB   step\n"
            "strategy  peak   (ms)  note\n"
            "ddp      12.35  1.000  a|b\n"
            "  min        7      -  say \"x\", y\n"
            "zero3      n/m    nan\n"
            "fsdp     WRONG h.0.weight\n");
}

TEST(Table, MarkdownHasOneHeaderAndEscapesBars) {
  EXPECT_EQ(to_markdown(sample()),
            "| strategy | memory, MiB: peak | step (ms) | note |\n"
            "|---|---:|---:|---|\n"
            "| ddp | 12.35 | 1.000 | a\\|b |\n"
            "| min | 7 | - | say \"x\", y |\n"
            "| zero3 | n/m | nan |  |\n"
            "| fsdp | WRONG h.0.weight | | |\n");
}

TEST(Table, CsvHasPlainNumbersAndQuotedTexts) {
  const Table table = sample();
  const std::string rows =
      "\"ddp\",\"right\",12.345678,1,\"a|b\"\n"
      "\"ddp\",\"right\",7,,\"say \"\"x\"\", y\"\n"
      "\"zero3\",\"right\",,,\n"
      "\"fsdp\",\"WRONG h.0.weight\",,,\n";
  EXPECT_EQ(to_csv({&table}), "strategy,status,peak_mib,step_ms,note\n" + rows);
  EXPECT_EQ(to_csv({&table, &table}), "strategy,status,peak_mib,step_ms,note\n" + rows + rows);
  const Table other(std::vector<Column>{{"", "x"}});
  EXPECT_THROW(to_csv({&table, &other}), InvariantError);
}

TEST(Table, JsonLeavesOutWhatHasNoValue) {
  const nlohmann::ordered_json rows = to_json(sample());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["peak_mib"], 12.345678);
  EXPECT_EQ(rows[1]["strategy"], "ddp");
  EXPECT_FALSE(rows[1].contains("step_ms"));
  EXPECT_FALSE(rows[2].contains("peak_mib"));
  EXPECT_FALSE(rows[2].contains("step_ms"));
  EXPECT_EQ(rows[3]["status"], "WRONG h.0.weight");
}

TEST(Table, KeysAreMadeFromNamesUnlessGiven) {
  EXPECT_EQ(key_of({"step", "+-%"}), "step_percent");
  EXPECT_EQ(key_of({"", "W"}), "w");
  EXPECT_EQ(key_of({"peak", "(MiB)"}), "peak_mib");
}

}  // namespace
}  // namespace shardbench::bench
