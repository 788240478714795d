#pragma once

#include <string>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// How to call the program again with other flags: "./shardbench compare --model gpt2". Used to
/// print commands that a reader can paste.
struct Invocation {
  std::string command = "./shardbench compare";  ///< with the flags given, --world and --link apart
  std::string world;                             ///< " --world 4" where it was given, else empty
};

/// Five short paragraphs made from the numbers of the last (largest tested) block: Result, Memory,
/// Traffic, Time, Balance. At most 90 columns. Without a right row only Result is left.
std::string plain_words(const Comparison& comparison, const Invocation& invocation);

}  // namespace shardbench::bench
