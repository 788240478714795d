#include <fmt/format.h>

#include <algorithm>

#include "bench/compare/row.h"

namespace shardbench::bench {
namespace {

std::string what_happened(comm::AbortRecord::Reason reason) {
  switch (reason) {
    case comm::AbortRecord::Reason::kThrew:
      return "failed";
    case comm::AbortRecord::Reason::kLost:
      return "was lost";
    case comm::AbortRecord::Reason::kTimeout:
      return "timed out";
    case comm::AbortRecord::Reason::kRequested:
      return "was stopped";
  }
  return "ended";
}

void replace_first(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = from.empty() ? std::string::npos : text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

void strip_front(std::string& text, const std::string& front) {
  if (text.starts_with(front)) text.erase(0, front.size());
}

/// The message without what stands in front of it already: messages name the position of the rank
/// and the call too, since they are also shown alone.
std::string new_in_message(const comm::AbortRecord& failure) {
  std::string text = failure.message;
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string rank = fmt::format("rank {}", failure.rank);
  const std::string phase(name_of(failure.phase));
  const std::string unit =
      failure.unit.empty() ? std::string() : fmt::format(", unit '{}'", failure.unit);
  const std::string position = fmt::format("{} (phase {}{}, ", rank, phase, unit);
  if (!failure.collective.empty()) {
    const std::string call = fmt::format("{} #{}", failure.collective, failure.sequence);
    replace_first(text, position + "in " + call + ")", rank);
    replace_first(text, fmt::format("{} '{}' (phase {})", call, failure.unit, phase), "it");
  }
  replace_first(text,
                position + fmt::format("outside any collective, last call #{})", failure.sequence),
                rank);
  replace_first(text, position, rank + " (");
  strip_front(text, "it: ");
  strip_front(text, rank + " ");
  strip_front(text, "was ");
  return text;
}

}  // namespace

std::string describe(const comm::AbortRecord& failure) {
  const std::string what = what_happened(failure.reason);
  std::string text = failure.rank < 0 ? fmt::format("the job {}", what)
                                      : fmt::format("rank {} {}", failure.rank, what);
  text += fmt::format(" in {}", name_of(failure.phase));
  if (!failure.unit.empty()) text += fmt::format(", unit {}", failure.unit);
  if (!failure.collective.empty()) {
    text += fmt::format(", {}", failure.collective);
    if (failure.sequence >= 0) text += fmt::format(" (call {})", failure.sequence);
  } else if (failure.sequence >= 0) {
    text += fmt::format(", after call {}", failure.sequence);
  }
  if (!failure.message.empty()) text += ": " + new_in_message(failure);
  return text;
}

}  // namespace shardbench::bench
