#include "common/core/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace shardbench {
namespace {

/// Puts a comma between groups of three digits before the point.
std::string separate_thousands(std::string text) {
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  std::size_t end = std::min(text.find('.'), text.size());
  while (end > first + 3) {
    end -= 3;
    text.insert(end, 1, ',');
  }
  return text;
}

struct Scale {
  double size;
  std::string_view name;
};

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Optimal string alignment distance, case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) table[i * width] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      std::size_t best = std::min({table[(i - 1) * width + j] + 1, table[i * width + j - 1] + 1,
                                   table[(i - 1) * width + j - 1] + change});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        best = std::min(best, table[(i - 2) * width + j - 2] + 1);
      }
      table[i * width + j] = best;
    }
  }
  return table.back();
}

}  // namespace

std::string format_significant(double value, int digits) {
  if (!std::isfinite(value)) return std::string(kNotApplicable);
  if (value == 0) return fmt::format("{:.{}f}", 0.0, std::max(0, digits - 1));
  // Rounding may carry into a new digit (9.996 -> 10.0), so the exponent is read from the result.
  const std::string scientific = fmt::format("{:.{}e}", value, std::max(0, digits - 1));
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  const int decimals = std::max(0, digits - 1 - exponent);
  return separate_thousands(fmt::format("{:.{}f}", value, decimals));
}

std::string format_count(std::int64_t value) {
  return separate_thousands(fmt::format("{}", value));
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<Scale, 4> kScales = {
      {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  const auto value = static_cast<double>(bytes);
  for (const Scale& scale : kScales) {
    if (std::abs(value) >= scale.size) {
      return fmt::format("{} {}", format_significant(value / scale.size), scale.name);
    }
  }
  return fmt::format("{} B", bytes);
}

std::string format_mib(std::int64_t bytes) {
  return format_significant(static_cast<double>(bytes) / 0x1p20);
}

std::string format_gib(std::int64_t bytes) {
  return format_significant(static_cast<double>(bytes) / 0x1p30);
}

std::string format_time_ns(std::int64_t ns) {
  constexpr std::array<Scale, 3> kScales = {{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  const auto value = static_cast<double>(ns);
  if (value >= 59.95e9) {
    const auto seconds = static_cast<std::int64_t>(std::llround(value / 1e9));
    if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
    const std::int64_t minutes = (seconds + 30) / 60;
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  }
  for (const Scale& scale : kScales) {
    if (std::abs(value) >= scale.size) {
      return fmt::format("{} {}", format_significant(value / scale.size), scale.name);
    }
  }
  return fmt::format("{} ns", ns);
}

std::string format_ms(std::int64_t ns) { return format_significant(static_cast<double>(ns) / 1e6); }

std::string format_percent(double fraction) {
  if (!std::isfinite(fraction)) return std::string(kNotApplicable);
  return fmt::format("{} %", format_significant(fraction * 100));
}

std::string format_ratio(double ratio) {
  if (!std::isfinite(ratio)) return std::string(kNotApplicable);
  return fmt::format("{}x", format_significant(ratio));
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::string closest(std::string_view name, const std::vector<std::string>& choices) {
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& choice : choices) {
    const std::size_t distance = edit_distance(name, choice);
    if (best == nullptr || distance < best_distance) {
      best = &choice;
      best_distance = distance;
    }
  }
  if (best == nullptr || best_distance * 3 > std::max(best->size(), name.size())) return {};
  return *best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& choices) {
  const std::string choice = closest(name, choices);
  return choice.empty() ? std::string{} : fmt::format(" (did you mean '{}'?)", choice);
}

}  // namespace shardbench
