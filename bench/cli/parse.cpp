#include "bench/cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::cli {
namespace {

template <typename Number>
std::errc read_all(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && rest != end) return std::errc::invalid_argument;
  return error;
}

/// A decimal number without digits before or after what from_chars takes, "+" included.
bool looks_whole(const std::string& text) {
  const std::size_t first = !text.empty() && text[0] == '-' ? 1 : 0;
  return text.size() > first &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::string range_text(std::int64_t min, std::int64_t max) {
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int32_t>::max();
  if (max >= kUnlimited) return fmt::format("of at least {}", min);
  return fmt::format("from {} to {}", min, max);
}

}  // namespace

std::int64_t parse_count(const std::string& flag, const std::string& text, std::int64_t min,
                         std::int64_t max) {
  std::int64_t value = 0;
  const std::errc error = read_all(text, value);
  if (error == std::errc::invalid_argument || !looks_whole(text)) {
    throw UserError::format("{} '{}': not a whole number; give one {}", flag, text,
                            range_text(min, max));
  }
  const bool too_small = error == std::errc{} ? value < min : text[0] == '-';
  const bool too_large = error == std::errc{} ? value > max : !too_small;
  if (too_small || too_large) {
    throw UserError::format("{} {}: must be a number {}; nearest: {}", flag, text,
                            range_text(min, max), too_small ? min : max);
  }
  return value;
}

std::uint64_t parse_seed(const std::string& flag, const std::string& text) {
  std::uint64_t value = 0;
  if (read_all(text, value) != std::errc{}) {
    throw UserError::format("{} '{}': not a whole number from 0 to 2^64 - 1", flag, text);
  }
  return value;
}

double parse_real(const std::string& flag, const std::string& text, double min, double max,
                  bool above) {
  double value = 0;
  if (read_all(text, value) != std::errc{} || !std::isfinite(value)) {
    throw UserError::format("{} '{}': not a number (write it as 0.001 or 1e-3)", flag, text);
  }
  const bool too_small = above ? value <= min : value < min;
  if (too_small || value > max) {
    const std::string bound =
        above ? fmt::format("above {}", min) : fmt::format("at least {}", min);
    const std::string top = max < 1e300 ? fmt::format(" and at most {}", max) : std::string();
    throw UserError::format("{} {}: must be {}{}", flag, text, bound, top);
  }
  return value;
}

std::string parse_choice(const std::string& flag, const std::string& text,
                         const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  throw UserError::format("{} '{}': choose from {}{}", flag, text, join(choices),
                          did_you_mean(text, choices));
}

std::vector<std::string> parse_list(const std::string& flag, const std::string& text) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    items.push_back(text.substr(at, end - at));
    at = end + 1;
    if (items.back().empty()) {
      throw UserError::format("{} '{}': an item is empty; separate them by single commas", flag,
                              text);
    }
    if (std::count(items.begin(), items.end(), items.back()) > 1) {
      throw UserError::format("{} '{}': {} stands there twice", flag, text, items.back());
    }
  }
  return items;
}

void require_distinct(const std::string& flag, const std::string& text,
                      const std::vector<std::string>& meanings) {
  for (auto item = meanings.begin(); item != meanings.end(); ++item) {
    if (std::find(std::next(item), meanings.end(), *item) != meanings.end()) {
      throw UserError::format("{} '{}': {} stands there twice", flag, text, *item);
    }
  }
}

std::pair<std::string, std::string> parse_pair(const std::string& flag, const std::string& text) {
  const std::size_t equal = text.find('=');
  if (equal == std::string::npos || equal == 0) {
    throw UserError::format("{} '{}': give it as KEY=VALUE", flag, text);
  }
  return {text.substr(0, equal), text.substr(equal + 1)};
}

void add_note(std::map<std::string, std::string>& notes, const std::vector<std::string>& own_keys,
              const std::string& text) {
  const auto [key, value] = parse_pair("--context", text);
  if (std::find(own_keys.begin(), own_keys.end(), key) != own_keys.end()) {
    throw UserError::format(
        "--context '{}': the result file has '{}' already, as it was measured; take another key",
        text, key);
  }
  if (!notes.emplace(key, value).second) {
    throw UserError::format("--context '{}': '{}' is given twice: leave one", text, key);
  }
}

SimdWidth parse_simd(const std::string& text, const std::vector<SimdWidth>& widths) {
  parse_choice("--simd", text, {"auto", "portable", "avx2", "avx512"});
  std::vector<std::string> names = {"auto"};
  for (const SimdWidth width : widths) {
    if (name_of(width) == text) return width;
    names.emplace_back(name_of(width));
  }
  if (text == "auto") return widths.back();
  throw UserError::format("--simd {}: this CPU does not have it; choose from {}", text,
                          join(names));
}

std::string parse_backend(const std::string& text) {
  return parse_choice("--backend", text, {"auto", "shm", "mpi", "nccl"});
}

}  // namespace shardbench::cli
