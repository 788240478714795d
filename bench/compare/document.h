#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>
#include <vector>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// What a result document says of the invocation beyond the request.
struct DocumentContext {
  std::vector<std::string> args;             ///< the command line, program name first
  std::map<std::string, std::string> extra;  ///< --context k=v; may not replace our own keys
  std::string executable;
  std::string torch_version;
};

/// Machine, build, versions and how the job ran (schema 1). Environment variables that change
/// results are listed by name under "env".
nlohmann::ordered_json context_json(const Request& request, const DocumentContext& context);
/// The keys that context_json writes itself: no note may take one.
std::vector<std::string> own_context_keys();
/// The work that all rows share. Of what is swept, the first value; "sweep" lists all.
nlohmann::ordered_json config_json(const Request& request, const sharding::ModelShape& model);
/// One row; absent = not measured. `baseline` may be null. What the request sweeps stands in its
/// "config", under the names of the document's config.
nlohmann::ordered_json result_json(const Request& request, const Row& row, const Row* baseline,
                                   const sharding::ModelShape& model);
/// Sets the value of an axis in a config.
void set_axis(nlohmann::ordered_json& config, Axis axis, const train::RunConfig& job);

/// schema_version, context, config, results, peers (where there are some), okay.
nlohmann::ordered_json document(const Comparison& comparison, const DocumentContext& context);

}  // namespace shardbench::bench
