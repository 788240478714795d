#include "bench/compare/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardbench::bench {

std::string figures(double value) {
  const double size = std::abs(value);
  // Limits a half unit below the power of ten, so that rounding never adds a figure.
  if (size < 9.9995) return fmt::format("{:.3f}", value);
  if (size < 99.995) return fmt::format("{:.2f}", value);
  if (size < 999.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string mib(double bytes) { return figures(bytes / (1024.0 * 1024.0)); }

std::string ms(double ns) { return figures(ns / 1e6); }

std::string ratio(double value) { return fmt::format("{:.2f}", value); }

std::string percent(double fraction) {
  const double value = fraction * 100;
  return std::abs(value) < 9.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  if (seconds < 119.5) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

std::string listing(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::string wrapped(const std::string& head, const std::string& text, std::size_t width) {
  const std::string indent(head.size(), ' ');
  std::string out;
  std::string line = head;
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!empty && line.size() + 1 + word.size() > width) {
      out += line + '\n';
      line = indent;
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return out + line + '\n';
}

}  // namespace shardbench::bench
