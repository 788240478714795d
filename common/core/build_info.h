#pragma once

#include <string_view>

namespace shardbench {

/// What this program was built from and how; goes into every result file.
struct BuildInfo {
  std::string_view version;     ///< "0.1.0"
  std::string_view git_sha;     ///< 40 digits, "-dirty" behind them if files differed; or "unknown"
  std::string_view build_type;  ///< "Release"
  std::string_view compiler;    ///< "GNU 12.2.0"
};

BuildInfo build_info();

}  // namespace shardbench
