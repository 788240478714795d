#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// How to call the program again with other flags: "./shardbench compare --model gpt2". Used to
/// print commands that a reader can paste.
struct Invocation {
  std::string command = "./shardbench compare";  ///< with the flags given, --world and --link apart
  std::string world;                             ///< " --world 4" where it was given, else empty
};

/// A paragraph with a heading of one word (or a column's name).
struct Paragraph {
  std::string topic;
  std::string text;
};

/// Five short paragraphs made from the numbers of the block with the largest W: Result, Memory,
/// Traffic, Time, Balance. Without a right row only Result is left.
std::vector<Paragraph> paragraphs(const Comparison& comparison, const Invocation& invocation);

/// The same as text of at most 90 columns.
std::string plain_words(const Comparison& comparison, const Invocation& invocation);
/// Paragraphs with their topics in a column of `width` letters at the left.
std::string to_text(const std::vector<Paragraph>& paragraphs, std::size_t width);

}  // namespace shardbench::bench
