#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shardbench::bench {

/// Stands for "does not apply" in tables.
inline constexpr const char* kDash = "-";
/// Stands for "not measured".
inline constexpr const char* kNotMeasured = "n/m";
inline constexpr std::size_t kScreenWidth = 90;

/// Four significant figures, three decimals at most: 0.125 1.250 12.50 125.0 1250.
std::string figures(double value);
/// Bytes as MiB, by figures().
std::string mib(double bytes);
/// Nanoseconds as ms, by figures().
std::string ms(double ns);
/// Two decimals.
std::string ratio(double value);
/// Percent with at most two figures: 0.4 3.1 12 104.
std::string percent(double fraction);
/// Seconds or minutes for people: 0.8 s, 42 s, 3 min.
std::string duration(double seconds);
/// "ddp", "ddp and fsdp", "ddp, zero3 and fsdp".
std::string listing(const std::vector<std::string>& names);

/// Text broken at spaces so that no line is wider than `width` (a longer word stays whole). The
/// first line starts with `head`, the others with as many spaces. Ends with a newline.
std::string wrapped(const std::string& head, const std::string& text,
                    std::size_t width = kScreenWidth);

}  // namespace shardbench::bench
