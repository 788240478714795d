#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace shardbench {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// debug info warning error off
std::string_view name_of(LogLevel level);

/// Takes one line, without its line end: "[rank 1/4 shm] warning: text" (the prefix only inside a
/// rank, "warning: " and "error: " only for these levels). Called under a lock, never by two
/// threads at once; must not log itself.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

/// Where lines go from now on; an empty sink restores the default, which writes to stderr.
void set_log_sink(LogSink sink);

/// Lines below `level` are dropped. Starts at kInfo.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Sends one line to the sink, with the calling thread's rank. Thread-safe.
void log_line(LogLevel level, std::string_view text);

namespace detail {
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) log_line(level, fmt::format(text, std::forward<Args>(args)...));
}
}  // namespace detail

template <typename... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  detail::log(LogLevel::kDebug, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  detail::log(LogLevel::kInfo, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  detail::log(LogLevel::kWarning, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  detail::log(LogLevel::kError, text, std::forward<Args>(args)...);
}

}  // namespace shardbench
