#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/cli/flags.h"
#include "bench/compare/plain_words.h"
#include "bench/compare/report.h"

namespace shardbench::cli {

/// The context and config of a result document, just made or read from a file.
struct DocumentParts {
  const nlohmann::ordered_json& context;
  const nlohmann::ordered_json& config;
};

/// What `compare` writes to stdout: the table, words and explanations that the flags ask for, as
/// text, csv or Markdown. `closing`: paragraphs under the words of the brief table, text only.
std::string comparison_text(const Flags& flags, const bench::Comparison& comparison,
                            const DocumentParts& document,
                            const std::vector<bench::Paragraph>& closing);

/// How to run the job of this command line again, for texts that name a command.
bench::Invocation invocation_of(const bench::Request& request,
                                const std::vector<std::string>& args);

}  // namespace shardbench::cli
