#include "common/core/error.h"

#include "common/core/rank_context.h"

namespace shardbench {

RankContext& rank_context() {
  thread_local RankContext context;
  return context;
}

std::string rank_prefix() {
  const RankContext& context = rank_context();
  if (context.rank < 0) return {};
  return fmt::format("[rank {}/{} {}] ", context.rank, context.world_size, context.backend);
}

std::string message_of(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("Exception raised from ");
  const std::size_t last = text.substr(0, end).find_last_not_of(" \n");
  return end == std::string::npos ? text : text.substr(0, last + 1);
}

namespace detail {

void throw_invariant(const char* file, int line, std::string_view expression,
                     std::string_view message) {
  throw InvariantError(fmt::format("{}{}:{}: check failed: {}{}{}", rank_prefix(), file, line,
                                   expression, message.empty() ? "" : ": ", message));
}

}  // namespace detail
}  // namespace shardbench
