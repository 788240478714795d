#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardbench {

/// Stands in a table where a figure does not apply.
inline constexpr std::string_view kNotApplicable = "-";

/// `digits` significant figures, never in exponent form, thousands separated: 0.001234, 1.230,
/// 12.30, 1,234. Digits before the point are never rounded away. NaN and infinities give "-".
std::string format_significant(double value, int digits = 3);

/// 1234567 -> "1,234,567".
std::string format_count(std::int64_t value);

/// "512 B", "1.50 KiB", "2.00 MiB", "1.21 GiB", "3.00 TiB": the largest unit that gives at least 1.
std::string format_bytes(std::int64_t bytes);
/// The number alone, in MiB (2^20) or GiB (2^30), three significant figures or all whole digits.
std::string format_mib(std::int64_t bytes);
std::string format_gib(std::int64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "1.23 s", "2 min 05 s", "1 h 02 min".
std::string format_time_ns(std::int64_t ns);
/// The number alone, in milliseconds.
std::string format_ms(std::int64_t ns);

/// 0.123 -> "12.3 %".
std::string format_percent(double fraction);
/// "1.50x".
std::string format_ratio(double ratio);

/// "a, b, c".
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

/// The choice with the smallest edit distance to `name` (insert, delete, change, swap neighbours;
/// case ignored; ties: the first), or "" when even that one has more than a third of its letters
/// wrong, so that nothing absurd is suggested.
std::string closest(std::string_view name, const std::vector<std::string>& choices);

/// " (did you mean 'gpt2'?)", or "" when nothing is close: to append to a UserError.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& choices);

}  // namespace shardbench
