#include "common/core/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "common/core/rank_context.h"

namespace shardbench {
namespace {

std::atomic<LogLevel> level_in_force{LogLevel::kInfo};

struct Sink {
  std::mutex mutex;
  LogSink sink;
};

Sink& the_sink() {
  static Sink* const instance = new Sink;  // never destroyed: static objects may log at exit
  return *instance;
}

/// One write per line, so that lines of several processes do not mix.
void write_to_stderr(std::string_view line) {
  const std::string text = fmt::format("{}\n", line);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) return;  // nobody left to tell
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

std::string_view name_of(LogLevel level) {
  constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warning", "error", "off"};
  return kNames[static_cast<std::size_t>(level)];
}

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(the_sink().mutex);
  the_sink().sink = std::move(sink);
}

void set_log_level(LogLevel level) { level_in_force.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return level_in_force.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  if (level < log_level() || level == LogLevel::kOff) return;
  const bool named = level == LogLevel::kWarning || level == LogLevel::kError;
  const std::string line =
      fmt::format("{}{}{}{}", rank_prefix(), named ? name_of(level) : "", named ? ": " : "", text);
  const std::lock_guard lock(the_sink().mutex);
  if (the_sink().sink) {
    the_sink().sink(level, line);
  } else {
    write_to_stderr(line);
  }
}

}  // namespace shardbench
