#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// A result document as tables need it.
struct StoredResults {
  Comparison comparison;
  nlohmann::ordered_json context;  ///< machine, build, versions, command line
  nlohmann::ordered_json config;   ///< the work
  bool okay = false;               ///< as the document says
};

/// Reads what `document` made, so that every table and text comes out as it did after the run. What
/// a document of the same schema from an older program lacks is "not measured". `name` is for
/// messages. Throws UserError in one line: no JSON or cut short, another schema, a strategy that
/// `registry` does not know, a field that is missing or of another type.
StoredResults read_document(const std::string& text, const std::string& name,
                            const train::Registry& registry);

/// The same from a file; throws UserError when it cannot be read.
StoredResults read_document_file(const std::string& path, const train::Registry& registry);

}  // namespace shardbench::bench
