#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace shardbench {

/// What a user did wrong. The message is one line: what, where, what to do. Exit code 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  template <typename... Args>
  static UserError format(fmt::format_string<Args...> text, Args&&... args) {
    return UserError(fmt::format(text, std::forward<Args>(args)...));
  }
};

/// A broken invariant: a bug here or in a backend. The message carries the expression, both
/// values, file:line, and the rank and backend of the thread that threw. Exit code 1.
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The job cannot go on because a peer is gone, stalled or out of step. Exit code 3.
class JobAborted : public InvariantError {
 public:
  using InvariantError::InvariantError;
};

/// What an exception says, without the stack trace that LibTorch appends.
std::string message_of(const std::exception& error);

namespace detail {
/// Throws InvariantError with place, expression, and the calling thread's rank and backend.
[[noreturn]] void throw_invariant(const char* file, int line, std::string_view expression,
                                  std::string_view message);
}  // namespace detail

}  // namespace shardbench

/// Checks an invariant; the message (fmt style) is optional.
#define SHARDBENCH_CHECK(condition, ...)                                    \
  do {                                                                      \
    if (!(condition)) [[unlikely]] {                                        \
      ::shardbench::detail::throw_invariant(__FILE__, __LINE__, #condition, \
                                            ::fmt::format("" __VA_ARGS__)); \
    }                                                                       \
  } while (false)

#define SHARDBENCH_CHECK_OP_(a, op, b)                                   \
  do {                                                                   \
    const auto& shardbench_a_ = (a);                                     \
    const auto& shardbench_b_ = (b);                                     \
    if (!(shardbench_a_ op shardbench_b_)) [[unlikely]] {                \
      ::shardbench::detail::throw_invariant(                             \
          __FILE__, __LINE__, #a " " #op " " #b,                         \
          ::fmt::format("{} against {}", shardbench_a_, shardbench_b_)); \
    }                                                                    \
  } while (false)

#define SHARDBENCH_CHECK_EQ(a, b) SHARDBENCH_CHECK_OP_(a, ==, b)
#define SHARDBENCH_CHECK_LE(a, b) SHARDBENCH_CHECK_OP_(a, <=, b)
#define SHARDBENCH_CHECK_LT(a, b) SHARDBENCH_CHECK_OP_(a, <, b)
#define SHARDBENCH_CHECK_GE(a, b) SHARDBENCH_CHECK_OP_(a, >=, b)
