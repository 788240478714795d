#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "bench/compare/plain_words.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {

/// All that one invocation shows, to be written in any format.
struct Report {
  Screen screen;
  std::vector<Paragraph> words;      ///< of the brief table
  std::vector<Paragraph> explained;  ///< --explain: a column each
};

/// Context line, tables, words and explanations, in at most 90 columns (wide tables apart).
std::string to_text(const Report& report);

/// A page of Markdown that says by itself what was run: above the tables the context line, command,
/// machine, versions and date, from the context and config of a result document.
std::string to_markdown(const Report& report, const nlohmann::ordered_json& context,
                        const nlohmann::ordered_json& config);

/// The tables with one header; words and extra sections are left out.
std::string to_csv(const Report& report);

/// The command line of a stored context, as a reader would type it: "./shardbench compare ...".
/// `without` names flags to leave out with their values.
std::string command_of(const std::vector<std::string>& args,
                       const std::vector<std::string>& without = {});

}  // namespace shardbench::bench
